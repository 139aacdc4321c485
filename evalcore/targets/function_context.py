"""What functions of suites are called with: the item's values, and how to call models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import TargetError
from evalcore.jsonvalues import own_copy, plain_value
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Complete, Endpoint, Reply, Request
from evalcore.model.target import DEFAULT_VARIANT, Target
from evalcore.providers.chat import PROTOCOLS, ChatModel
from evalcore.targets.options import BuildContext, provider_of
from evalcore.targets.registry import MODEL_KINDS, build_within
from evalcore.targets.work import Work
from evalcore.targets.wrappers import strips_reasoning
from evalcore.trust.imports import ForeignError, call_foreign
from evalcore.wording import did_you_mean

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine


@dataclass(frozen=True, eq=False)
class FlowVariant(str):
    """A variant as functions see it: the text of its id, and what it changes.

    `config` is the variant's own, nothing is in it by default.
    """

    id: str
    provider: str | None = None
    model: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()

    def __new__(cls, id: str, *_: object, **__: object) -> FlowVariant:  # noqa: A002 - the field
        """Return the variant; its text is `id`."""
        return super().__new__(cls, id)


class CountedCalls:
    """Makes the calls of one work item; `count` says how many were tried.

    They are made in the event loop that it was created in, whichever loop asks: a flow's functions
    run in another.
    """

    def __init__(self, complete: Complete) -> None:
        self._complete = complete
        self._loop = asyncio.get_running_loop()
        self.count = 0

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; errors as `Complete`."""
        self.count += 1
        if asyncio.get_running_loop() is self._loop:
            return await self._complete(request)
        reply = asyncio.run_coroutine_threadsafe(self._completed(request), self._loop)
        return await asyncio.wrap_future(reply)

    async def _completed(self, request: Request) -> Reply:
        return await self._complete(request)


ChatModels = Callable[[str | None, str | None], ChatModel]
"""Returns a model by the names of its provider and its own; raises `TargetError` if unknown."""


@dataclass(frozen=True, slots=True)
class FlowContext:
    """One call of a function: of a `flow`, of a target `python`.

    `complete` (with a whole `Request`; raises `ProviderError`) and `chat` call models: recorded,
    limited and counted by the engine. `iteration` counts from 0. `cancel` is set when nothing waits
    for the answer any more: at a time limit, a stopped run.
    """

    case_input: Any
    variant: FlowVariant
    mode: str
    case_id: str
    iteration: int
    complete: Complete = field(repr=False)
    _models: ChatModels = field(repr=False)
    _loop: asyncio.AbstractEventLoop = field(repr=False)
    cancel: Event = field(default_factory=Event, repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expected_output: Any = None
    messages: tuple[Mapping[str, Any], ...] = ()
    workspace: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        names = sorted(public for public in dir(self) if not public.startswith("_"))
        hint = f"{did_you_mean(name, names)} It has: {', '.join(names)}"
        raise AttributeError(f"the context has no '{name}'.{hint}")

    @property
    def input(self) -> Any:
        """The case's input."""
        return self.case_input

    def arguments(self) -> dict[str, Any]:
        """Return the values that a flow's functions may take as parameters."""
        return {"context": self, **{name: getattr(self, name) for name in _ARGUMENTS}}

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration: a target's with the variant's over it, a flow's is the variant's."""
        return self.variant.config

    async def chat(
        self,
        *,
        messages: Sequence[Mapping[str, Any]] | str,
        provider: str | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> Reply:
        """Ask a model; without `provider` and `model` the variant's are asked.

        `provider` is a variant's provider or a target of the suite, else `openai` or `anthropic`
        with the key from the environment. `parameters` have the names of the OpenAI API. Raises
        `ProviderError` when the call gave no answer.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        variant = self.variant
        chat = self._models(provider or variant.provider, model or variant.model)
        request = chat.request(messages, parameters=parameters, response_schema=response_schema)
        if tools:
            request = replace(request, tools=tuple(tools))
        return chat.read(await self.complete(request))

    def chat_sync(self, **arguments: Any) -> Reply:
        """Ask a model from a function that is not async, as `chat` does."""
        chat = self.chat(**arguments)
        return asyncio.run_coroutine_threadsafe(chat, self._loop).result()


# What parameters of a flow's functions are called, and which value of the context each is.
FLOW_NAMES: Final = {
    "case_input": "case_input",
    "input": "case_input",
    "inputs": "case_input",
    "variant": "variant",
    "mode": "mode",
    "context": "context",
    "ctx": "context",
    "config": "config",
    "case_id": "case_id",
    "iteration": "iteration",
}
_ARGUMENTS: Final = ("case_input", "variant", "mode", "config", "case_id", "iteration")
FLOW_ORDER: Final = ("case_input", "variant", "mode")
FLOW_MORE: Final = (*FLOW_ORDER, "context")


def context_of(
    work: Work,
    config: Mapping[str, Any],
    names: tuple[str | None, str | None],
    calls: CountedCalls,
    models: ChatModels,
) -> FlowContext:
    """Return the context of a work item, from within the engine's loop.

    Its values are the function's own to change; `names` are those of a provider and a model.
    """
    return FlowContext(
        case_input=own_copy(work.case.input),
        variant=FlowVariant(work.variant.id, *names, own_copy(config), work.variant.tags),
        mode=work.mode,
        case_id=work.case.id,
        iteration=work.iteration,
        complete=calls,
        _models=models,
        _loop=asyncio.get_running_loop(),
        metadata=own_copy(work.case.metadata),
        expected_output=own_copy(work.case.expected_output),
        messages=own_copy(work.messages),
        workspace=None if work.workspace is None else str(work.workspace),
    )


async def called(kind: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return what a function returns; raise `TargetError` of `kind` for what it raises."""
    try:
        return await call_foreign(function, *arguments, **keywords)
    except ForeignError as error:
        cause = error.__cause__
        if isinstance(cause, TargetError):
            raise cause from None
        raise TargetError(kind, str(error)) from cause


def measured(evidence: Evidence, calls: CountedCalls, started: float) -> Evidence:
    """Return the evidence with its latency, unless it or its calls say what that is."""
    metrics = evidence.metrics
    if metrics.latency_ms is not None or calls.count:
        return evidence
    latency_ms = round((perf_counter() - started) * 1000, 1)
    return evidence._replace(metrics=replace(metrics, latency_ms=latency_ms))


COMPLETE: Final = "complete"
# The protocol of a request whose endpoint only the engine knows.
_ENGINE: Final = "engine"
_ASKED: Final = (
    *("endpoint", "model", "messages", "parameters", "tools"),
    *("response_schema", "stream", "attempt_timeout_s"),
)


def model_in_worker(provider: str | None, model: str | None) -> ChatModel:
    """Return what stands for a model until the engine is asked."""
    return ChatModel(Endpoint(_ENGINE, provider_of(provider, model), ""), model or "")


def complete_in_worker(engine: Engine) -> Complete:
    """Return a function that has the engine make the call."""

    async def complete(request: Request) -> Reply:
        values = {name: plain_value(getattr(request, name)) for name in _ASKED}
        reply: Reply = await engine.ask(COMPLETE, values)
        return reply

    return complete


async def complete_in_engine(
    raw: Mapping[str, Any], models: ChatModels, complete: Complete
) -> Reply:
    """Make the call that a worker asks for, with what only the engine knows of its model."""
    endpoint = raw["endpoint"]
    if endpoint["protocol"] != _ENGINE:
        parts = {name: tuple(raw[name]) for name in ("messages", "tools")}
        return await complete(Request(**{**raw, **parts, "endpoint": Endpoint(**endpoint)}))
    chat = models(endpoint["provider"], raw["model"] or None)
    request = chat.request(
        raw["messages"], parameters=raw["parameters"], response_schema=raw["response_schema"]
    )
    if raw["tools"]:
        request = replace(request, tools=tuple(raw["tools"]))
    return chat.read(await complete(request))


def chat_model_of(
    provider: str | None,
    model: str | None,
    providers: Mapping[str, Mapping[str, Any]],
    context: BuildContext,
) -> ChatModel:
    """Return the model: of an entry `{kind, options}` of `providers`, else of OpenAI or Anthropic.

    Raise `TargetError` that says which provider or model is not known.
    """
    name = provider_of(provider, model)
    entry = providers.get(name)
    if entry is None and name not in PROTOCOLS:
        names = ", ".join(dict.fromkeys([*providers, *PROTOCOLS]))
        hint = "a variant's 'provider' and the suite's own 'targets' are known here"
        raise TargetError("provider", f"unknown provider '{name}'; known: {names} ({hint})")
    kind, options = (name, {}) if entry is None else (entry["kind"], dict(entry["options"]))
    if kind not in MODEL_KINDS:
        raise TargetError("provider", f"provider '{name}' is of kind '{kind}', which has no chat")
    if model is not None:
        options["model"] = model
    if not options.get("model"):
        raise TargetError("provider", f"no model is named for provider '{name}'")
    target = Target(name, kind, options)
    built: Any = build_within(context, target, what=f"provider '{name}'", error_kind="provider")
    chat: ChatModel = built.chat
    return replace(chat, strips_reasoning=strips_reasoning(target, DEFAULT_VARIANT))
