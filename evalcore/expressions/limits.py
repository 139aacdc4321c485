"""Where expressions and scripts run: here, or in a worker process that is stopped at its limits.

An expression that takes little time for the data it has is evaluated at once. Everything else
runs in a worker process, with a copy of the variables that it names: after 5 seconds, or 1 GiB of
memory, it ends, and only the iteration that asked for it fails.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import pickle
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import TargetError
from evalcore.expressions.engine import (
    SCALARS,
    Code,
    ExpressionError,
    LimitError,
    UnboundedError,
    compile_expression,
    compile_script,
    evaluate,
    failure_of,
    record_of,
    run_script,
    size_of,
    suggestion,
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
_PLAIN: Final = {
    "builtins": ("set", "frozenset", "range"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
}


def value_of(code: Code, scope: Mapping[str, Any]) -> Any:
    """Return the value of a compiled expression; what it changes in the scope is changed.

    Raises `ExpressionError`.
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
    used = {name: scope[name] for name in code.names if name in scope}
    source, most = f"${{{code.source.strip()}}}", code.most_bytes
    if most and all(type(value) in SCALARS or _is_data(value, most) for value in used.values()):
        with suppress(UnboundedError):
            return evaluate(code, used)
    _check_data(used, source)
    from evalcore.isolation.pool import Job

    job = Job("evalcore.expressions.limits:evaluate_in_worker", (code.source, used))
    pool = _pool()
    try:
        answer = pool.start(pool.call(job, timeout_s=SECONDS)).result()
    except TimeoutError:
        raise ExpressionError("LimitError", f"it takes longer than {SECONDS:g} s", source) from None
    except TargetError as error:
        raise ExpressionError("LimitError", f"it takes too much memory: {error}", source) from None
    value, changed = _taken(answer, source)
    for name, new in changed.items():
        _replace(scope[name], new)
    return value


def _check_data(used: Mapping[str, Any], source: str) -> None:
    """Raise `ExpressionError` for a variable that is no plain data, or too large."""
    try:
        for value in used.values():
            size_of(value)
    except (LimitError, TypeError) as error:
        raise failure_of(error, source) from None


def _is_data(value: Any, most: int) -> bool:
    """Whether a value is plain data of at most so many bytes."""
    try:
        return size_of(value, most) <= most
    except (LimitError, TypeError):
        return False


def _replace(old: Any, new: Any) -> None:
    """Give a collection of the scope the contents that it has in the worker."""
    if isinstance(old, list):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)


class _Reader(pickle.Unpickler):
    """Reads what a process answers in which a file's text ran: plain data, and no other class."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the classes of plain data."""
        if name not in _PLAIN.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
        return super().find_class(module, name)


def encode(value: Any) -> str:
    """Return plain data as a text that JSON can carry."""
    return b64encode(pickle.dumps(value)).decode()


def decode(text: str) -> Any:
    """Return what `encode` made a text of."""
    return _Reader(BytesIO(b64decode(text))).load()


def _taken(answer: Any, source: str) -> tuple[Any, dict[str, Any]]:
    """Return a worker's value and what it changed; raise `ExpressionError`."""
    for record in answer["log"]:
        _log.info("%s", record)
    if "kind" in answer:
        raise ExpressionError(answer["kind"], answer["reason"], answer.get("source", source))
    try:
        return decode(answer["value"]), decode(answer["changed"])
    except pickle.UnpicklingError as error:
        raise ExpressionError("TypeError", str(error), source) from None


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

    code, failures = compile_script(source), list[Exception]()
    used = {name: scope[name] for name in code.names if name in scope and name not in tools}
    _check_data(used, "script")
    loop, clock = asyncio.get_running_loop(), asyncio.timeout(SECONDS)
    left, entered = SECONDS, 0

    @contextmanager
    def stopped() -> Iterator[None]:
        nonlocal left, entered  # a tool may be asked for before it is known that the code is loaded
        if not entered:
            left = (clock.when() or loop.time()) - loop.time()
            clock.reschedule(None)
        entered += 1
        try:
            yield
        finally:
            entered -= 1
            if not entered and not clock.expired():
                clock.reschedule(loop.time() + left)

    async def answer(name: str, value: Any) -> Any:
        values, named = decode(value)
        with stopped():
            try:
                return await tools[name](*values, **named)
            except Exception as error:  # of a tool; it is raised where the script is awaited
                failures.append(error)
                raise TargetError("tool", str(error)) from error

    names = [name for name in tools if name in code.names]
    job = Job("evalcore.expressions.limits:run_in_worker", (source, used, names), answer)
    try:
        async with clock:
            taken = await _pool().call(job, stopped)
    except TimeoutError:
        if not clock.expired():
            raise
        raise ExpressionError(
            "LimitError", f"it takes longer than {SECONDS:g} s", "script"
        ) from None
    except TargetError as error:
        reason = f"it takes too much memory: {error}"
        raise ExpressionError("LimitError", reason, "script") from None
    if failures and "kind" in taken:
        raise failures[0]
    return _taken(taken, "script")[0]


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
    return {"value": value, "changed": encode({}), "log": records}
