"""The target `python`: a function of the suite's author answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from json import JSONEncoder
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from evalcore.errors import EvalError, TargetError
from evalcore.isolation.mode import Isolation
from evalcore.isolation.pool import Job, no_answer
from evalcore.jsonvalues import plain_value
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Complete, Reply
from evalcore.planning.codec import decode_evidence, encode_evidence
from evalcore.targets.function_context import (
    COMPLETE,
    ChatModels,
    CountedCalls,
    FlowContext,
    alive,
    called,
    chat_model_of,
    complete_in_engine,
    complete_in_worker,
    context_of,
    measured,
    model_in_worker,
)
from evalcore.targets.options import BuildContext
from evalcore.targets.work import Answering, TargetOptions, Work, json_text
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine
    from evalcore.providers.chat import ChatModel


_ENCODER: Final = JSONEncoder()
_KIND: Final = "python"
_ENTRY: Final = "evalcore.targets.python:call_in_worker"


class PythonOptions(TargetOptions):
    """Options of a target of kind `python`."""

    callable: str = Field(
        description="`module:function`, called as `fn(input, *, context)`, or `fn(input)` if it "
        "takes no context; sync or async. Returns text, an `Evidence`, or a value that is taken as "
        "its JSON: a mapping, list, number, truth value, dataclass or pydantic model. The module "
        "lies below the suite's folder or the current directory, or is on the import allow-list."
    )
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="Handed to the function as `context.config`; a variant's configuration is "
        "laid over it.",
    )
    providers: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="What the function may name as provider beside `openai` and `anthropic`; set "
        "by loaders.",
    )
    isolation: Isolation | None = Field(
        default=None,
        description="`process`: the function runs in a worker process, which it cannot leave; "
        "`inline`: in the engine's. By default what the run says: `process` for suites in files.",
    )


class PythonTarget(Answering):
    """Calls the function and makes evidence of what it returns.

    With worker processes at hand it is called in one of them, and a process that it ends is this
    item's error; a call that does not end at its time limit ends with its process. Inline
    an async function runs in a loop of another thread, a sync one in a thread of its own: when the
    caller's time limit cancels an answer, an async function is cancelled, and the result of a sync
    one is dropped. The latency is measured around the call, unless the function returns an
    `Evidence` that brings its own.
    """

    def __init__(self, options: PythonOptions, context: BuildContext) -> None:
        self._options = options
        self._context = context
        self._load = cache(_load)

    async def answer(self, work: Work) -> Evidence:
        """Return the function's answer.

        Raise `TargetError`: of kind `import` if there is no such function or trust does not grant
        it, of kind `python` if it raises or returns something else, of kind `process` if its
        worker process ends.
        """
        self._context.check(work.mode)
        reference, config = self._options.callable, self._options.config
        provider, model = (_text_or_none(config.get(name)) for name in ("provider", "model"))
        context = context_of(work, config, provider, model)
        workers = work.workers.of(self._options.isolation)
        if workers is None:
            loaded = self._load(reference, work.imports)
            return await evidence_of(loaded, context, work.complete, self._chat)

        async def answer(question: str, value: Any) -> Any:
            if question == COMPLETE:
                return await complete_in_engine(value, self._chat, work.complete)
            return await no_answer(question, value)

        job = Job(_ENTRY, PythonCall(reference, work.imports, context), answer)
        return decode_evidence(await workers.call(job, work.standing_still))

    def _chat(self, provider: str | None, model: str | None) -> ChatModel:
        return chat_model_of(provider, model, self._options.providers, self._context)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class PythonCall:
    """One call of a function: which, where it may be imported from, and with what."""

    reference: str
    imports: ImportPolicy
    context: FlowContext


Loaded = tuple[Callable[..., Any], bool]
"""A function, and whether it takes a context."""


def _load(reference: str, imports: ImportPolicy) -> Loaded:
    """Return the function; raise `TargetError` of kind `import`."""
    try:
        function = imports.load(reference)
    except EvalError as error:
        raise TargetError("import", str(error)) from error
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature
        return function, False
    takes_context = any(
        item.kind is item.VAR_KEYWORD
        or (item.name == "context" and item.kind is not item.POSITIONAL_ONLY)
        for item in parameters
    )
    return function, takes_context


async def evidence_of(
    loaded: Loaded, context: FlowContext, complete: Complete, models: ChatModels
) -> Evidence:
    """Return the function's answer as evidence; raise `TargetError` of kind `python`.

    Model calls of its context are the engine's to measure: without any, the latency is measured
    around the function.
    """
    calls = CountedCalls(complete)
    context = alive(context, calls, models)
    function, takes_context = loaded
    keywords = {"context": context} if takes_context else {}
    started = perf_counter()
    try:
        value = await called(_KIND, function, context.case_input, **keywords)
    finally:
        context.cancel.set()
    return measured(_evidence(value), calls, started)


# Of a worker process, which imports a module once.
_load_once: Final = cache(_load)


async def call_in_worker(call: PythonCall, engine: Engine) -> dict[str, Any]:
    """Return the evidence of a call as JSON values: what a worker process runs."""
    loaded = _load_once(call.reference, call.imports)
    engine.loaded()
    complete = complete_in_worker(engine)
    return encode_evidence(await evidence_of(loaded, call.context, complete, model_in_worker))


def _evidence(value: Any) -> Evidence:
    if isinstance(value, Evidence):
        output: Any = value.output
        if output is not None and not isinstance(output, str):
            name = type(output).__name__
            raise TargetError(_KIND, f"returned an Evidence whose output is {name}, not text")
        try:
            _ENCODER.encode(encode_evidence(value))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise TargetError(_KIND, f"returned what JSON cannot hold: {error}") from error
        return value
    if isinstance(value, Reply):
        return Evidence(output=value.text)
    try:
        plain = plain_value(value)
        if isinstance(plain, str):
            return Evidence(output=str(plain))
        if not isinstance(plain, Mapping | list | bool | int | float):
            name = type(value).__name__
            raise TargetError(_KIND, f"returned {name}; return text, a JSON value or an Evidence")
        return Evidence(output=json_text(plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetError(_KIND, f"returned what JSON cannot hold: {error}") from error
