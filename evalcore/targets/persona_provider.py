"""The provider of a soul of a workflow: an entry of `targets.yaml`, or OpenAI or Anthropic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from evalcore.errors import TargetError, UsageError
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Endpoint
from evalcore.model.suite import Case
from evalcore.model.target import Target
from evalcore.targets.build_context import BuildContext
from evalcore.targets.case_messages import Message, prompt_of
from evalcore.targets.work import AsksServers, Runnable, Work
from evalcore.workflow.context import NO_OFFER, Offer, SoulAnswer
from evalcore.workflow.definition import Soul
from evalcore.workflow.events import NoExecutorError

PROTOCOLS: Final = ("openai", "anthropic")
# One of these set is a provider for souls that name none.
ENVIRONMENT: Final = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
)
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_KEYLESS_MODES: Final = ("replay", "auto")


class PersonaProvider:
    """Builds the target behind each soul once, and asks it."""

    def __init__(self, providers: Mapping[str, Mapping[str, Any]], context: BuildContext) -> None:
        """Take what a soul's `provider` may name: entries `{kind, options}` by name."""
        self._providers = providers
        self._context = context
        self._built: dict[str, tuple[str, Runnable]] = {}
        self._configured = any(context.environment.get(name) for name in ENVIRONMENT)

    async def ask(
        self, work: Work, soul: Soul, messages: Sequence[Message], offer: Offer = NO_OFFER
    ) -> SoulAnswer:
        """Return the answer; a provider that is no model of `PROTOCOLS` calls no tools.

        Raise `UsageError` where the soul names no model or an unknown provider, `NoExecutorError`
        where it names no provider and none is configured; `ProviderError`, `SkippedError` and other
        `TargetError`s as the provider does.
        """
        if soul.provider is None and work.mode not in _KEYLESS_MODES and not self._configured:
            raise NoExecutorError
        provider, runnable = self._runnable(soul, offer)
        _check_key(provider, runnable, soul, work.mode)
        conversation = tuple(messages)
        prompt = prompt_of(conversation)
        case = work.case._replace(input=prompt)
        question = replace(work, case=case, messages=conversation, prompt=prompt)
        evidence = await runnable.answer(question)
        return _answer_of(evidence, provider, soul)

    def ready_endpoints(self, souls: Iterable[Soul], case: Case, mode: str) -> Iterator[Endpoint]:
        """Yield the endpoints that these souls ask; raise `UsageError` for a key that is missing.

        A soul that names no provider where none is set up is left to the case's own error.
        """
        for soul in souls:
            if soul.provider is None and not self._configured:
                continue
            provider, runnable = self._runnable(soul, NO_OFFER)
            _check_key(provider, runnable, soul, mode)
            if isinstance(runnable, AsksServers):
                yield from runnable.ready_endpoints(case, mode)

    def _runnable(self, soul: Soul, offer: Offer) -> tuple[str, Runnable]:
        key = repr((soul, offer))
        if key not in self._built:
            self._built[key] = self._build(soul, offer)
        return self._built[key]

    def _build(self, soul: Soul, offer: Offer) -> tuple[str, Runnable]:
        from evalcore.targets.registry import build

        name = provider_of(soul)
        target = self._target(soul, name, offer)
        try:
            context = self._context
            built = build(target, folder=context.folder, environment=context.surroundings)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            message = f"soul '{soul.id}', provider '{name}': {where}: {first['msg']}"
            raise UsageError(message) from error
        return name, built

    def _target(self, soul: Soul, name: str, offer: Offer) -> Target:
        entry = self._providers.get(name)
        if entry is None:
            if name not in PROTOCOLS:
                names = ", ".join(dict.fromkeys([*self._providers, *PROTOCOLS]))
                raise UsageError(f"soul '{soul.id}': unknown provider '{name}'; known: {names}")
            if soul.model_name is None:
                message = f"soul '{soul.id}' names no model, or is not defined"
                raise UsageError(f"{message}; give it 'model_name'")
            return Target(name, name, _options({}, soul, offer))
        kind, options = entry["kind"], entry["options"]
        if kind not in PROTOCOLS and kind != "any-llm":
            return Target(name, kind, options)
        if soul.model_name is None and not options.get("model"):
            message = f"soul '{soul.id}': neither it nor provider '{name}' names a model"
            raise UsageError(f"{message}; give it 'model_name'")
        return Target(name, kind, _options(options, soul, offer))


def provider_of(soul: Soul) -> str:
    """Return the provider that a soul names; a model's name says which if it names none."""
    if soul.provider is not None:
        return soul.provider
    return "anthropic" if (soul.model_name or "").lower().startswith("claude") else "openai"


def _options(options: Mapping[str, Any], soul: Soul, offer: Offer) -> dict[str, Any]:
    """Return a model's options with the soul's, and what it may call, laid over them."""
    from evalcore.providers.chat import ChatOptions

    merged = dict(options)
    if soul.model_name is not None:
        merged["model"] = soul.model_name
    if soul.system_prompt:
        merged.pop("system_prompt", None)
    if offer.tools:
        merged["tools"] = [*offer.tools]
        if offer.choice is not None:
            merged["tool_choice"] = offer.choice
    for name, value in soul.parameters.items():
        if name in ChatOptions.model_fields:
            merged[name] = value
        else:
            merged["parameters"] = {**merged.get("parameters", {}), name: value}
    return merged


def _check_key(provider: str, runnable: Runnable, soul: Soul, mode: str) -> None:
    """Raise `UsageError` if a model of another machine would be asked without any key."""
    chat = getattr(runnable, "chat", None)
    if chat is None or mode in _KEYLESS_MODES:
        return
    endpoint = chat.endpoint
    if endpoint.api_key or endpoint.headers or urlsplit(endpoint.address).hostname in _LOCAL:
        return
    if provider in PROTOCOLS:
        remedy = f"set {provider.upper()}_API_KEY in the environment"
    else:
        remedy = "give its entry in targets.yaml an 'api_key: ${{ NAME }}'"
    raise UsageError(f"provider '{provider}' of soul '{soul.id}' has no key: {remedy}")


def _answer_of(evidence: Evidence, provider: str, soul: Soul) -> SoulAnswer:
    if evidence.output is None:
        raise TargetError("target", f"provider '{provider}' gave no output")
    calls = evidence.details.get("calls")
    call: Mapping[str, Any] = calls[-1] if calls else {}
    return SoulAnswer(
        text=evidence.output,
        provider=call.get("provider") or provider,
        model=call.get("model") or soul.model_name or "",
        metrics=evidence.metrics,
        attempts=call.get("attempts") or 1,
        recorded=bool(call.get("recorded")),
        tool_calls=tuple(_tool_calls(evidence)),
    )


def _tool_calls(evidence: Evidence) -> Sequence[Mapping[str, Any]]:
    messages = evidence.details.get("messages")
    return (messages[-1].get("tool_calls") or ()) if messages else ()
