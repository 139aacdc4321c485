"""The target `python`: a function of the suite's author answers; and how functions are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from json import JSONEncoder
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import Field

from evalcore.errors import EvalError, TargetError
from evalcore.isolation.mode import Isolation
from evalcore.isolation.pool import Job, WorkerPool, no_answer
from evalcore.jsonvalues import plain_value
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Reply
from evalcore.planning.codec import decode_evidence, encode_evidence
from evalcore.targets.function_context import (
    COMPLETE,
    CountedCalls,
    FlowContext,
    called,
    chat_model_of,
    complete_in_engine,
    complete_in_worker,
    context_of,
    measured,
    model_in_worker,
)
from evalcore.targets.options import BuildContext
from evalcore.targets.registry import KINDS, options_model
from evalcore.targets.work import Answering, TargetOptions, Work, json_text
from evalcore.trust.imports import ImportPolicy, arguments_for, find_callable

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine
    from evalcore.providers.chat import ChatModel


_KIND: Final = "python"
_ENCODER: Final = JSONEncoder()
_ENTRY: Final = "evalcore.targets.python:function_in_worker"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One work item of a function, as a worker process gets it: its target's kind and options."""

    kind: str
    options: dict[str, Any]
    name: str
    work: Work


def _load(reference: str, imports: ImportPolicy) -> Callable[..., Any]:
    """Return the function; raise `TargetError` of kind `import`."""
    try:
        function: Callable[..., Any] = find_callable(reference, imports, {})
    except EvalError as error:
        raise TargetError("import", str(error)) from error
    return function


# Of a worker process, which imports a module once.
_load_once: Final = cache(_load)


class FunctionTarget(Answering):
    """Calls a function of the suite's author, and makes evidence of what it returns.

    With worker processes at hand it is called in one of them, and a process that it ends is this
    item's error; a call that does not end at its time limit ends with its process. Inline
    an async function runs in a loop of another thread, a sync one in a thread of its own: when the
    caller's time limit cancels an answer, an async function is cancelled, and the result of a sync
    one is dropped. Model calls that functions make through their context are counted by the engine;
    without any the latency is measured around the function.
    """

    kind: ClassVar[str]

    def __init__(self, options: Any, context: BuildContext, engine: Engine | None = None) -> None:
        """Take the `engine` in a worker process: it is asked for what only it knows."""
        self._options, self._context, self._engine = options, context, engine
        self._load = cache(_load) if engine is None else _load_once

    async def answer(self, work: Work) -> Evidence:
        """Return the answer.

        Raise `TargetError`: of kind `import` if there is no such function or trust does not grant
        it, of the target's kind if it raises or returns what is no answer, of kind `process` if its
        worker process ends; those of what it calls.
        """
        self._context.check(work.mode)
        workers = self._workers(work)
        if workers is not None:
            return await self._answer_in_worker(work, workers)
        function, calls = self._function(work), CountedCalls(work.complete)
        names = self._model_names()
        context = context_of(work, self._options.config, names, calls, self.chat)
        started = perf_counter()
        try:
            evidence = await self._execute(function, context, work)
        finally:
            context.cancel.set()
        return measured(evidence, calls, started)

    async def _answer_in_worker(self, work: Work, workers: WorkerPool) -> Evidence:
        options = self._options.model_dump(exclude={"providers"})
        call = FunctionCall(self.kind, options, self._context.name, work.alone())

        async def answer(question: str, value: Any) -> Any:
            return await self._answer_worker(question, value, work)

        return decode_evidence(await workers.call(Job(_ENTRY, call, answer), work.standing_still))

    def _workers(self, work: Work) -> WorkerPool | None:
        """Return the worker processes that the function runs in; None for this one."""
        reference = self._options.callable
        # A function of the program that defined the suite is nowhere else.
        if reference is None or reference in work.objects:
            return None
        return work.workers.of(self._options.isolation)

    async def _answer_worker(self, question: str, value: Any, work: Work) -> Any:
        """Return the answer to what a worker process asks."""
        if question == COMPLETE:
            return await complete_in_engine(value, self.chat, work.complete)
        return await no_answer(question, value)

    def _function(self, work: Work) -> Any:
        reference = self._options.callable
        if reference in work.objects:
            return work.objects[reference]
        function = self._load(reference, work.imports)
        if self._engine is not None:
            self._engine.loaded()
        return function

    def _model_names(self) -> tuple[str | None, str | None]:
        """Return the provider and the model that are asked where the function names none."""
        raise NotImplementedError

    async def _execute(self, function: Any, context: FlowContext, work: Work) -> Evidence:
        """Call the function and return its answer as evidence; raise `TargetError`."""
        raise NotImplementedError

    def chat(self, provider: str | None, model: str | None) -> ChatModel:
        """Return the model of these names (in a worker what stands for it); raise `TargetError`."""
        if self._engine is not None:
            return model_in_worker(provider, model)
        return chat_model_of(provider, model, self._options.providers, self._context)


async def function_in_worker(call: FunctionCall, engine: Engine) -> dict[str, Any]:
    """Return the evidence of a call as JSON values: what a worker process runs."""
    options = options_model(call.kind)(**call.options)
    context = BuildContext(call.name, call.work.folder, {})
    target = KINDS[call.kind].runnable(options, context, engine)
    work = replace(call.work, complete=complete_in_worker(engine))
    return encode_evidence(await target.answer(work))


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


class PythonTarget(FunctionTarget):
    """Calls the function with the input, and with the context if it takes one."""

    kind = _KIND

    def _model_names(self) -> tuple[str | None, str | None]:
        config = self._options.config
        provider, model = (config.get(name) for name in ("provider", "model"))
        return (
            provider if isinstance(provider, str) else None,
            model if isinstance(model, str) else None,
        )

    async def _execute(self, function: Any, context: FlowContext, work: Work) -> Evidence:  # noqa: ARG002 - as its base
        values = {"input": context.case_input, "context": context}
        names = {"context": "context"}
        arguments, keywords = arguments_for(function, values, ["input"], names, ["context"])
        return _evidence(await called(self.kind, function, *arguments, **keywords))


def _evidence(value: Any) -> Evidence:
    if isinstance(value, Evidence):
        output: Any = value.output
        if output is not None and not isinstance(output, str):
            name = type(output).__name__
            raise TargetError(
                PythonTarget.kind, f"returned an Evidence whose output is {name}, not text"
            )
        try:
            _ENCODER.encode(encode_evidence(value))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise TargetError(
                PythonTarget.kind, f"returned what JSON cannot hold: {error}"
            ) from error
        return value
    if isinstance(value, Reply):
        return Evidence(output=value.text)
    try:
        plain = plain_value(value)
        if isinstance(plain, str):
            return Evidence(output=str(plain))
        if not isinstance(plain, Mapping | list | bool | int | float):
            name = type(value).__name__
            raise TargetError(
                PythonTarget.kind, f"returned {name}; return text, a JSON value or an Evidence"
            )
        return Evidence(output=json_text(plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetError(_KIND, f"returned what JSON cannot hold: {error}") from error
