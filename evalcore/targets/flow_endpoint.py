"""Which model a flow asks when it names a provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from evalcore.errors import EvalError, TargetError
from evalcore.model.target import DEFAULT_VARIANT, Target
from evalcore.providers.chat import ChatModel
from evalcore.targets.build_context import BuildContext
from evalcore.targets.reasoning import strips_reasoning
from evalcore.targets.registry import MODEL_KINDS, build

_PROTOCOLS: Final = ("openai", "anthropic")


def chat_model_of(
    provider: str,
    model: str | None,
    providers: Mapping[str, Mapping[str, Any]],
    context: BuildContext,
) -> ChatModel:
    """Return the model: of an entry `{kind, options}` of `providers`, else of OpenAI or Anthropic.

    Raise `TargetError` that says which provider or model is not known.
    """
    entry = providers.get(provider)
    if entry is None and provider not in _PROTOCOLS:
        names = ", ".join(dict.fromkeys([*providers, *_PROTOCOLS]))
        message = f"unknown provider '{provider}'; known: {names}"
        hint = "a variant's 'provider' and the suite's own 'targets' are known here"
        raise TargetError("provider", f"{message} ({hint})")
    kind, options = (provider, {}) if entry is None else (entry["kind"], dict(entry["options"]))
    if kind not in MODEL_KINDS:
        message = f"provider '{provider}' is of kind '{kind}', which has no chat"
        raise TargetError("provider", message)
    if model is not None:
        options["model"] = model
    if not options.get("model"):
        raise TargetError("provider", f"no model is named for provider '{provider}'")
    try:
        target = Target(provider, kind, options)
        built: Any = build(target, folder=context.folder, environment=context.surroundings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TargetError("provider", f"provider '{provider}': {where}: {first['msg']}") from error
    except TargetError:
        raise
    except EvalError as error:
        raise TargetError("provider", str(error)) from error
    chat: ChatModel = built.chat
    return replace(chat, strips_reasoning=strips_reasoning(target, DEFAULT_VARIANT))
