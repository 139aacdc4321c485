"""What a workflow factory is called with: the case's input, the variant, and how to call models."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from evalcore.model.exchange import Complete, Reply, Request

if TYPE_CHECKING:
    from evalcore.providers.chat import ChatModel


@dataclass(frozen=True, slots=True)
class FlowVariant:
    """A variant as a flow sees it. `config` is the variant's own, nothing is in it by default."""

    id: str
    provider: str | None = None
    model: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


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


class ChatModels(Protocol):
    """Finds a model by the names of its provider and its own; None is the default."""

    def __call__(self, provider: str | None, model: str | None) -> ChatModel:
        """Return the model; raise `TargetError` if there is none of these names."""


@dataclass(frozen=True, slots=True)
class FlowContext:
    """One call of a flow.

    `complete` and `chat` call models: recorded, limited and counted by the engine. `iteration`
    counts from 0.
    """

    case_input: Any
    variant: FlowVariant
    mode: str
    case_id: str
    iteration: int
    complete: Complete
    models: ChatModels
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expected_output: Any = None
    messages: tuple[Mapping[str, Any], ...] = ()
    loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False, compare=False)

    @property
    def input(self) -> Any:
        """The case's input."""
        return self.case_input

    @property
    def config(self) -> Mapping[str, Any]:
        """The variant's configuration."""
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
        chat = self.models(provider or self.variant.provider, model or self.variant.model)
        request = chat.request(messages, parameters=parameters, response_schema=response_schema)
        if tools:
            request = replace(request, tools=tuple(tools))
        return await self.complete(request)

    def chat_sync(self, **arguments: Any) -> Reply:
        """Ask a model from a function that is not async, as `chat` does."""
        if self.loop is None:
            raise RuntimeError("chat_sync works inside of a flow that is being run")
        return asyncio.run_coroutine_threadsafe(self.chat(**arguments), self.loop).result()


_NAMES: Final = {
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
_IN_ORDER: Final = ("case_input", "variant", "mode")
_BY_KEYWORD: Final = ("case_input", "variant", "mode", "context")


def arguments_for(
    function: Callable[..., Any], context: FlowContext
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call of a flow's function.

    Parameters named `case_input` (or `input`, `inputs`), `variant`, `mode`, `context`, `config`,
    `case_id`, `iteration` get that, in any order; the others get the input, the variant and the
    mode, in this order, unless they have defaults. `**more` gets the first four by name.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return [context.case_input], {}
    named = {_NAMES[each.name] for each in parameters if each.name in _NAMES}
    rest = [name for name in _IN_ORDER if name not in named]
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    skipped = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            bound = {name for name in _IN_ORDER if name not in rest} | named
            keywords |= {name: _of(context, name) for name in _BY_KEYWORD if name not in bound}
            continue
        name = _NAMES.get(parameter.name)
        if name is None:
            if parameter.default is not parameter.empty or not rest:
                skipped = True
                continue
            name = rest.pop(0)
        if parameter.kind is parameter.KEYWORD_ONLY or skipped:
            keywords[parameter.name] = _of(context, name)
        else:
            positional.append(_of(context, name))
    return positional, keywords


def _of(context: FlowContext, name: str) -> Any:
    return context if name == "context" else getattr(context, name)
