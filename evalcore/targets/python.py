"""The target `python`: a function of somebody's own."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from evalcore.errors import EvalError, TargetError
from evalcore.model.evidence import Evidence, Metrics
from evalcore.targets.messages import Message, json_text
from evalcore.targets.work import Work
from evalcore.trust.foreign_calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy

_KIND: Final = "python"


class PythonOptions(BaseModel):
    """Options of a target of kind `python`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    callable: str = Field(
        description="`module:function`, called as `fn(input, *, context)`, or `fn(input)` if it "
        "takes no context; sync or async. Returns text, a mapping or list (taken as its JSON) or "
        "an `Evidence`. The module lies below the suite's folder or the current directory, or is "
        "on the import allow-list."
    )
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="Handed to the function as `context.config`; a variant's configuration is "
        "laid over it.",
    )


@dataclass(frozen=True, slots=True)
class CallContext(Mapping[str, Any]):
    """What the function learns beside the input, as attributes or by key."""

    case_id: str
    variant: str
    iteration: int
    metadata: Mapping[str, Any]
    messages: tuple[Message, ...]
    config: Mapping[str, Any]
    workspace: str | None = None

    def __getitem__(self, key: str) -> Any:
        if key not in self._names():
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in fields(self))


class _Function(NamedTuple):
    call: Callable[..., Any]
    takes_context: bool


class PythonTarget:
    """Calls the function and makes evidence of what it returns.

    An async function runs in the event loop, a sync one in a thread of its own. When the caller's
    time limit cancels an answer, an async function is cancelled; a sync one cannot be stopped: its
    thread is left to itself and its result dropped. It holds no place in a pool, and as a daemon
    thread it does not keep the process from ending. The latency is measured around the call,
    unless the function returns an `Evidence` that brings its own.
    """

    def __init__(self, options: PythonOptions) -> None:
        self._options = options
        self._functions: dict[ImportPolicy, _Function] = {}

    def answer_now(self, work: Work) -> Evidence | None:  # noqa: ARG002 - the protocol's parameter
        """Return None: a function may take its time."""
        return None

    async def answer(self, work: Work) -> Evidence:
        """Return the function's answer.

        Raise `TargetError`: of kind `import` if there is no such function or trust does not grant
        it, of kind `python` if it raises or returns something else.
        """
        function = self._function(work.imports)
        keywords = {"context": self._context(work)} if function.takes_context else {}
        started = time.perf_counter()
        value = await _called(function.call, work.case.input, keywords)
        return _evidence(value, (time.perf_counter() - started) * 1000)

    def _function(self, imports: ImportPolicy) -> _Function:
        found = self._functions.get(imports)
        if found is None:
            try:
                found = _described(imports.load(self._options.callable))
            except EvalError as error:
                raise TargetError("import", str(error)) from error
            self._functions[imports] = found
        return found

    def _context(self, work: Work) -> CallContext:
        return CallContext(
            case_id=work.case.id,
            variant=work.variant.id,
            iteration=work.iteration,
            metadata=work.case.metadata,
            messages=work.messages,
            config=self._options.config,
            workspace=None if work.workspace is None else str(work.workspace),
        )


def _described(function: Callable[..., Any]) -> _Function:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature
        return _Function(function, takes_context=False)
    takes_context = any(
        item.kind is item.VAR_KEYWORD
        or (item.name == "context" and item.kind is not item.POSITIONAL_ONLY)
        for item in parameters
    )
    return _Function(function, takes_context)


async def _called(
    function: Callable[..., Any], case_input: Any, keywords: Mapping[str, Any]
) -> Any:
    try:
        return await call_foreign(function, case_input, **keywords)
    except ForeignError as error:
        cause = error.__cause__
        if isinstance(cause, TargetError):
            raise cause from None
        raise TargetError(_KIND, str(error)) from cause


def _evidence(value: Any, latency_ms: float) -> Evidence:
    if isinstance(value, str):
        return Evidence(output=value, metrics=Metrics(latency_ms=latency_ms))
    if isinstance(value, Evidence):
        output: Any = value.output
        if output is not None and not isinstance(output, str):
            found = type(output).__name__
            raise TargetError(_KIND, f"returned an Evidence whose output is {found}, not text")
        if value.metrics.latency_ms is not None:
            return value
        return value._replace(metrics=replace(value.metrics, latency_ms=latency_ms))
    if not isinstance(value, Mapping | list | tuple):
        found = type(value).__name__
        raise TargetError(_KIND, f"returned {found}; return text, a mapping, a list or an Evidence")
    try:
        text = json_text(value)
    except (TypeError, ValueError) as error:
        raise TargetError(_KIND, f"returned what JSON cannot hold: {error}") from error
    return Evidence(output=text, metrics=Metrics(latency_ms=latency_ms))
