"""Model calls of functions in worker processes: asked there, made by the engine.

The engine's limits, budget, recordings and keys are in its process; a worker knows no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from evalcore.model.exchange import Complete, Endpoint, Reply, Request
from evalcore.targets.flow_context import ChatModels

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine
    from evalcore.providers.chat import ChatModel

COMPLETE: Final = "complete"
# The protocol of a request whose endpoint only the engine knows.
_ENGINE: Final = "engine"


def default_provider(provider: str | None, model: str | None) -> str:
    """Return the provider that a call means which names none."""
    return provider or ("anthropic" if (model or "").startswith("claude") else "openai")


def model_in_worker(provider: str | None, model: str | None) -> ChatModel:
    """Return what stands for a model until the engine is asked."""
    # Many functions call no model, and this is most of what a worker process would import.
    from evalcore.providers.chat import ChatModel

    return ChatModel(Endpoint(_ENGINE, default_provider(provider, model), ""), model or "")


def complete_in_worker(engine: Engine) -> Complete:
    """Return a function that has the engine make the call."""

    async def complete(request: Request) -> Reply:
        reply: Reply = await engine.ask(COMPLETE, _values_of(request))
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


def _values_of(request: Request) -> dict[str, Any]:
    """Return a request as JSON values."""
    endpoint = request.endpoint
    return {
        "endpoint": {
            "protocol": endpoint.protocol,
            "provider": endpoint.provider,
            "base_url": endpoint.base_url,
            "api_key": endpoint.api_key,
            "headers": dict(endpoint.headers),
            "values": dict(endpoint.values),
        },
        "model": request.model,
        "messages": [dict(message) for message in request.messages],
        "parameters": dict(request.parameters),
        "tools": [dict(tool) for tool in request.tools],
        "response_schema": request.response_schema,
        "stream": request.stream,
        "attempt_timeout_s": request.attempt_timeout_s,
    }
