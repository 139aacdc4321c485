"""The target `python`: a function of the suite's author answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from evalcore.isolation.mode import Isolation
from evalcore.isolation.pool import Job, no_answer
from evalcore.model.evidence import Evidence
from evalcore.model.own_copy import own_copy
from evalcore.model.suite import Case
from evalcore.planning.codec import decode_evidence
from evalcore.targets.build_context import BuildContext
from evalcore.targets.engine_calls import COMPLETE, complete_in_engine, default_provider
from evalcore.targets.flow_context import FlowContext, FlowVariant
from evalcore.targets.flow_endpoint import chat_model_of
from evalcore.targets.python_call import PythonCall, PythonFunctions, evidence_of
from evalcore.targets.work import Work

if TYPE_CHECKING:
    from evalcore.providers.chat import ChatModel

_ENTRY: Final = "evalcore.targets.python_call:call_in_worker"


class PythonOptions(BaseModel):
    """Options of a target of kind `python`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


class PythonTarget:
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
        self._functions = PythonFunctions()

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return True: a function may take its time."""
        return True

    async def answer(self, work: Work) -> Evidence:
        """Return the function's answer.

        Raise `TargetError`: of kind `import` if there is no such function or trust does not grant
        it, of kind `python` if it raises or returns something else, of kind `process` if its
        worker process ends.
        """
        self._context.check(work.mode)
        reference, context = self._options.callable, self._call_context(work)
        workers = work.workers.of(self._options.isolation)
        if workers is None:
            function = self._functions.load(reference, work.imports)
            return await evidence_of(function, context, work.complete, self._chat)

        async def answer(question: str, value: Any) -> Any:
            if question == COMPLETE:
                return await complete_in_engine(value, self._chat, work.complete)
            return await no_answer(question, value)

        job = Job(_ENTRY, PythonCall(reference, work.imports, context), answer)
        return decode_evidence(await workers.call(job, work.standing_still))

    def _chat(self, provider: str | None, model: str | None) -> ChatModel:
        named = default_provider(provider, model)
        return chat_model_of(named, model, self._options.providers, self._context)

    def _call_context(self, work: Work) -> FlowContext:
        config = own_copy(self._options.config)
        provider, model = (_text_or_none(config.get(name)) for name in ("provider", "model"))
        return FlowContext(
            case_input=own_copy(work.case.input),
            variant=FlowVariant(work.variant.id, provider, model, config, work.variant.tags),
            mode=work.mode,
            case_id=work.case.id,
            iteration=work.iteration,
            metadata=own_copy(work.case.metadata),
            expected_output=own_copy(work.case.expected_output),
            messages=own_copy(work.messages),
            workspace=None if work.workspace is None else str(work.workspace),
        )


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
