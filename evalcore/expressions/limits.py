"""Where expressions and scripts run: here, or in a worker process that is stopped at its limits.

An expression that takes little time for the data it has is evaluated at once. Everything else
runs in a worker process, with a copy of the variables that it names: after 5 seconds, or 1 GiB of
memory, it ends, and only the iteration that asked for it fails.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import date, datetime, timedelta
from datetime import time as day_time
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import TargetError
from evalcore.expressions.engine import (
    ATOMS,
    SCALARS,
    Code,
    ExpressionError,
    LimitError,
    Opaque,
    UnboundedError,
    compile_expression,
    compile_script,
    evaluate,
    failure_of,
    record_of,
    run_script,
    size_of,
    suggestion,
    without_address,
)
from evalcore.trust.imports import in_thread

if TYPE_CHECKING:
    from evalcore.isolation.pool import WorkerPool
    from evalcore.isolation.worker import Engine

SECONDS: Final = 5.0
_MEMORY: Final = 1 << 30
_log: Final = logging.getLogger("evalcore.expressions")
_UNKNOWN: Final = re.compile(r"no variable '(\w+)'")
_MOST_RECORDS: Final = 1_000
_TAG: Final = "\0"
_BASES: Final[tuple[Any, ...]] = (list, tuple, set, frozenset)
_COLLECTIONS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "range": lambda values: range(*values),
    "date": lambda values: date.fromisoformat(*values),
    "datetime": lambda values: datetime.fromisoformat(*values),
    "time": lambda values: day_time.fromisoformat(*values),
    "timedelta": lambda values: timedelta(*values),
    "Decimal": lambda values: Decimal(*values),
}


def value_of(code: Code, scope: Mapping[str, Any]) -> Any:
    """Return the value of a compiled expression; what it changes in the scope is changed.

    Values of tools that are no plain data can be returned and written, and no more. Raises
    `ExpressionError`.
    """
    try:
        return _value_of(code, scope)
    except ExpressionError as error:
        name = _UNKNOWN.fullmatch(error.reason)
        if name is None:
            raise
        reason = error.reason + suggestion(name[1], scope)
        raise ExpressionError(error.kind, reason, error.source) from None


def _value_of(code: Code, scope: Mapping[str, Any]) -> Any:
    objects: list[Any] = []
    used = {name: scope[name] for name in code.names if name in scope}
    try:
        most = code.most_bytes
        is_little = all(type(value) in SCALARS or _is_data(value, most) for value in used.values())
        if not is_little:
            used = {name: _plain(value, objects) for name, value in used.items()}
            is_little = sum(map(size_of, used.values())) <= most
        if most and is_little:
            with suppress(UnboundedError):
                return _restored(evaluate(code, used), objects)
    except (LimitError, TypeError) as error:
        raise failure_of(error, f"${{{code.source.strip()}}}") from None
    from evalcore.isolation.pool import Job

    job = Job("evalcore.expressions.limits:evaluate_in_worker", (code.source, used))
    source, pool = f"${{{code.source.strip()}}}", _pool()
    try:
        answer = pool.start(pool.call(job, timeout_s=SECONDS)).result()
    except TimeoutError:
        raise ExpressionError("LimitError", f"it takes longer than {SECONDS:g} s", source) from None
    except TargetError as error:
        raise ExpressionError("LimitError", f"it takes too much memory: {error}", source) from None
    value, changed = _taken(answer, source, objects)
    for name, new in changed.items():
        _replace(scope[name], new)
    return value


def _is_data(value: Any, most: int) -> bool:
    """Whether a value is plain data of at most so many bytes."""
    try:
        return size_of(value, most) <= most
    except (LimitError, TypeError):
        return False


def _plain(value: Any, objects: list[Any], depth: int = 0) -> Any:
    """Return a copy of builtin classes only; `objects` takes what is none of them."""
    if type(value) in ATOMS:
        return value
    if depth > 100:
        raise LimitError("a value is nested deeper than 100 levels")
    if isinstance(value, str):
        return str.__getitem__(value, slice(None))
    if isinstance(value, int):
        return int.__pos__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, Mapping):
        return {
            _plain(key, objects, depth + 1): _plain(each, objects, depth + 1)
            for key, each in value.items()
        }
    for base in _BASES:
        if isinstance(value, base):
            return base(_plain(each, objects, depth + 1) for each in value)
    objects.append(value)
    try:
        text = without_address(str(value))
    except Exception:  # noqa: BLE001 - a tool's own `__str__`
        text = f"<{type(value).__name__}>"
    return Opaque(len(objects) - 1, text)


def _restored(value: Any, objects: list[Any]) -> Any:
    """Return a value with the tools' own in the place of what stood for them."""
    if not objects:
        return value
    kind = type(value)
    if kind is Opaque:
        return objects[value.number]
    if kind is dict:
        return {_restored(k, objects): _restored(each, objects) for k, each in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(_restored(each, objects) for each in value)
    return value


def _replace(old: Any, new: Any) -> None:
    """Give a collection of the scope the contents that it has in the worker."""
    if isinstance(old, list):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)


def encode(value: Any) -> Any:
    """Return plain data as JSON values."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is list:
        return [encode(each) for each in value]
    if kind is dict:
        if all(type(key) is str and key != _TAG for key in value):
            return {key: encode(each) for key, each in value.items()}
        return {_TAG: "dict", "of": [[encode(k), encode(each)] for k, each in value.items()]}
    if kind is Opaque:
        return {_TAG: "value", "of": value.number}
    if kind is range:
        members: list[Any] = [value.start, value.stop, value.step]
    elif kind is timedelta:
        members = [value.days, value.seconds, value.microseconds]
    elif kind is Decimal:
        members = [str(value)]
    elif isinstance(value, (date, day_time)):
        members = [value.isoformat()]
    else:
        members = [encode(each) for each in value]
    return {_TAG: kind.__name__, "of": members}


def decode(raw: Any, objects: list[Any]) -> Any:
    """Return what `encode` made JSON of; `objects` are the values that `Opaque` stands for."""
    if isinstance(raw, list):
        return [decode(each, objects) for each in raw]
    if not isinstance(raw, dict):
        return raw
    if _TAG not in raw:
        return {key: decode(each, objects) for key, each in raw.items()}
    if raw[_TAG] == "value":
        return objects[raw["of"]]
    return _COLLECTIONS[raw[_TAG]](decode(raw["of"], objects))


def _taken(answer: Any, source: str, objects: list[Any]) -> tuple[Any, dict[str, Any]]:
    """Return a worker's value and what it changed; raise `ExpressionError`."""
    for record in answer["log"]:
        _log.info("%s", record)
    if "kind" in answer:
        raise ExpressionError(answer["kind"], answer["reason"], answer.get("source", source))
    return decode(answer["value"], objects), decode(answer["changed"], objects)


@cache
def _pool() -> WorkerPool:
    """Return the processes that evaluate; they end with this one."""
    from evalcore.isolation.pool import Launch, WorkerPool
    from evalcore.trust.commands import minimal_environment

    launch = Launch(environment=minimal_environment({}), memory=_MEMORY)
    pool = WorkerPool(limit=4, launch=launch)
    atexit.register(pool.close)
    return pool


class _Records(list[str]):
    def log(self, message: Any, *values: Any) -> None:
        """Keep a record for the engine's log."""
        if len(self) >= _MOST_RECORDS:
            raise LimitError(f"more than {_MOST_RECORDS} records of the log")
        self.append(record_of(message, *values))

    def print(self, *values: Any) -> None:
        """Keep what a script prints."""
        self.log(" ".join(map(str, values)))


async def evaluate_in_worker(asked: tuple[str, dict[str, Any]], engine: Engine) -> Any:
    """Return the value of an expression, or its error: what a worker process runs."""
    source, scope = asked
    code, records = compile_expression(source), _Records()
    engine.loaded()
    try:
        value = encode(evaluate(code, scope, records.log))
        changed = {}
        if code.changes:
            for name in code.names & scope.keys():
                if type(scope[name]) in (list, dict, set):
                    size_of(scope[name])
                    changed[name] = scope[name]
        return {"value": value, "changed": encode(changed), "log": records}
    except ExpressionError as error:
        return {"kind": error.kind, "reason": error.reason, "log": records}
    except (LimitError, TypeError) as error:
        return {"kind": type(error).__name__, "reason": str(error), "log": records}


async def script_result(
    source: str, scope: Mapping[str, Any], tools: Mapping[str, Callable[..., Awaitable[Any]]]
) -> Any:
    """Return the result of a script that may call tools, whose time does not count.

    It has copies of the variables that it names. Raises `ExpressionError`, and what a tool raises.
    """
    from evalcore.isolation.pool import Job

    code, objects = compile_script(source), list[Any]()
    failures: list[Exception] = []
    try:
        used = {n: _plain(scope[n], objects) for n in code.names if n in scope and n not in tools}
    except LimitError as error:
        raise failure_of(error, "script") from None
    async with _clock() as stopped:

        async def answer(name: str, value: Any) -> Any:
            values, named = decode(value, objects)
            with stopped():
                try:
                    return _plain(await tools[name](*values, **named), objects)
                except Exception as error:  # of a tool; it is raised where the script is awaited
                    failures.append(error)
                    raise TargetError("tool", str(error)) from error

        names = [name for name in tools if name in code.names]
        job = Job("evalcore.expressions.limits:run_in_worker", (source, used, names), answer)
        try:
            taken = await _pool().call(job, stopped)
        except TargetError as error:
            reason = f"it takes too much memory: {error}"
            raise ExpressionError("LimitError", reason, "script") from None
    if failures and "kind" in taken:
        raise failures[0]
    return _taken(taken, "script", objects)[0]


@asynccontextmanager
async def _clock() -> AsyncIterator[Callable[[], AbstractContextManager[None]]]:
    """Raise `ExpressionError` after `SECONDS`; what is entered of what it yields does not count."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SECONDS) as scope:
            left, entered = SECONDS, 0

            @contextmanager
            def stopped() -> Iterator[None]:
                nonlocal left, entered
                if not entered:
                    left = (scope.when() or loop.time()) - loop.time()
                    scope.reschedule(None)
                entered += 1
                try:
                    yield
                finally:
                    entered -= 1
                    if not entered and not scope.expired():
                        scope.reschedule(loop.time() + left)

            yield stopped
    except TimeoutError:
        if not scope.expired():
            raise
        raise ExpressionError(
            "LimitError", f"it takes longer than {SECONDS:g} s", "script"
        ) from None


async def run_in_worker(asked: tuple[str, dict[str, Any], list[str]], engine: Engine) -> Any:
    """Return the result of a script, or its error: what a worker process runs."""
    source, scope, names = asked
    code, records, loop = compile_script(source), _Records(), asyncio.get_running_loop()

    def tool(name: str) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            asked = engine.ask(name, encode([list(values), named]))
            return asyncio.run_coroutine_threadsafe(asked, loop).result()

        return call

    functions = {"log": records.log, "print": records.print, **{name: tool(name) for name in names}}
    engine.loaded()
    try:
        value = await in_thread(lambda: encode(run_script(code, scope, functions)))
    except ExpressionError as error:
        failure = {"kind": error.kind, "reason": error.reason, "source": error.source}
        return {**failure, "log": records}
    return {"value": value, "changed": {}, "log": records}
