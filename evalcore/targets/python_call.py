"""A call of a Python target: what the function gets, and what its answer becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from json import JSONEncoder
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.model.evidence import Evidence, Metrics
from evalcore.planning.codec import encode_evidence
from evalcore.targets.case_messages import Message, json_text
from evalcore.trust.foreign_calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.isolation.worker_program import Engine

KIND: Final = "python"
_ENCODER: Final = JSONEncoder()


@dataclass(frozen=True, slots=True)
class PythonContext(Mapping[str, Any]):
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


@dataclass(frozen=True, slots=True)
class PythonCall:
    """One call of a function: which, where it may be imported from, and with what."""

    reference: str
    imports: ImportPolicy
    case_input: Any
    context: PythonContext


class _Function(NamedTuple):
    call: Callable[..., Any]
    takes_context: bool


class PythonFunctions:
    """The functions of one process by their reference, imported once."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, ImportPolicy], _Function] = {}

    def load(self, reference: str, imports: ImportPolicy) -> _Function:
        """Return the function; raise `TargetError` of kind `import`."""
        key = (reference, imports)
        function = self._functions.get(key)
        if function is None:
            try:
                function = _described(imports.load(reference))
            except EvalError as error:
                raise TargetError("import", str(error)) from error
            self._functions[key] = function
        return function


async def evidence_of(function: _Function, case_input: Any, context: PythonContext) -> Evidence:
    """Return the function's answer as evidence; raise `TargetError` of kind `python`."""
    keywords = {"context": context} if function.takes_context else {}
    started = perf_counter()
    value = await _called(function.call, case_input, keywords)
    return _evidence(value, (perf_counter() - started) * 1000)


_IN_THIS_PROCESS: Final = PythonFunctions()


async def call_in_worker(call: PythonCall, engine: Engine) -> dict[str, Any]:
    """Return the evidence of a call as JSON values: what a worker process runs."""
    function = _IN_THIS_PROCESS.load(call.reference, call.imports)
    engine.loaded()
    return encode_evidence(await evidence_of(function, call.case_input, call.context))


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
        raise TargetError(KIND, str(error)) from cause


def _evidence(value: Any, latency_ms: float) -> Evidence:
    if isinstance(value, str):
        return Evidence(output=value, metrics=Metrics(latency_ms=latency_ms))
    if isinstance(value, Evidence):
        output: Any = value.output
        if output is not None and not isinstance(output, str):
            name = type(output).__name__
            raise TargetError(KIND, f"returned an Evidence whose output is {name}, not text")
        try:
            _ENCODER.encode(encode_evidence(value))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise TargetError(KIND, f"returned what JSON cannot hold: {error}") from error
        if value.metrics.latency_ms is not None:
            return value
        return value._replace(metrics=replace(value.metrics, latency_ms=latency_ms))
    if not isinstance(value, Mapping | list | tuple):
        name = type(value).__name__
        raise TargetError(KIND, f"returned {name}; return text, a mapping, a list or an Evidence")
    try:
        text = json_text(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetError(KIND, f"returned what JSON cannot hold: {error}") from error
    return Evidence(output=text, metrics=Metrics(latency_ms=latency_ms))
