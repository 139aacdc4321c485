"""A call of a Python target: what the function gets, and what its answer becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from json import JSONEncoder
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Complete, Reply
from evalcore.model.own_copy import plain_value
from evalcore.planning.codec import encode_evidence
from evalcore.targets.case_messages import json_text
from evalcore.targets.engine_calls import complete_in_worker, model_in_worker
from evalcore.targets.flow_context import (
    ChatModels,
    CountedCalls,
    FlowContext,
    live_call,
    measured,
)
from evalcore.trust.calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine

KIND: Final = "python"
_ENCODER: Final = JSONEncoder()


@dataclass(frozen=True, slots=True)
class PythonCall:
    """One call of a function: which, where it may be imported from, and with what."""

    reference: str
    imports: ImportPolicy
    context: FlowContext


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


async def evidence_of(
    function: _Function, context: FlowContext, complete: Complete, models: ChatModels
) -> Evidence:
    """Return the function's answer as evidence; raise `TargetError` of kind `python`.

    Model calls of its context are the engine's to measure: without any, the latency is measured
    around the function.
    """
    calls = CountedCalls(complete)
    live = live_call(calls, models, context.case_id, context.variant, context.iteration)
    keywords = {"context": replace(context, live=live)} if function.takes_context else {}
    started = perf_counter()
    try:
        value = await _called(function.call, context.case_input, keywords)
    finally:
        live.cancel.set()
    return measured(_evidence(value), calls, round((perf_counter() - started) * 1000, 1))


_IN_THIS_PROCESS: Final = PythonFunctions()


async def call_in_worker(call: PythonCall, engine: Engine) -> dict[str, Any]:
    """Return the evidence of a call as JSON values: what a worker process runs."""
    function = _IN_THIS_PROCESS.load(call.reference, call.imports)
    engine.loaded()
    complete = complete_in_worker(engine)
    return encode_evidence(await evidence_of(function, call.context, complete, model_in_worker))


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


def _evidence(value: Any) -> Evidence:
    if isinstance(value, Evidence):
        output: Any = value.output
        if output is not None and not isinstance(output, str):
            name = type(output).__name__
            raise TargetError(KIND, f"returned an Evidence whose output is {name}, not text")
        try:
            _ENCODER.encode(encode_evidence(value))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise TargetError(KIND, f"returned what JSON cannot hold: {error}") from error
        return value
    if isinstance(value, Reply):
        return Evidence(output=value.text)
    try:
        plain = plain_value(value)
        if isinstance(plain, str):
            return Evidence(output=str(plain))
        if not isinstance(plain, Mapping | list | bool | int | float):
            name = type(value).__name__
            raise TargetError(KIND, f"returned {name}; return text, a JSON value or an Evidence")
        return Evidence(output=json_text(plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetError(KIND, f"returned what JSON cannot hold: {error}") from error
