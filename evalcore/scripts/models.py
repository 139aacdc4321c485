"""The models of a script: entries of its `models` section, as options of a chat model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import field_validator

from evalcore.expressions.template import Tree, compile_tree
from evalcore.jsonvalues import parse_storable
from evalcore.model.exchange import Reply
from evalcore.model.target import SERVICES
from evalcore.scripts.iteration import (
    Iteration,
    Scope,
    Tool,
    ToolError,
    is_caught,
    kind_of,
)
from evalcore.scripts.score import text_of
from evalcore.scripts.statements import MistakeCollector, ScriptPart, read_shape
from evalcore.shapes import OrAbsent
from evalcore.trust.secrets import literals_of_target
from evalcore.wording import Loc, describe, suggest

VARIANT_KEYS: Final = ("models", "data")
"""The keys of a variant's `config`."""
PROTOCOLS: Final = ("openai", "anthropic")
_REASONING: Final = ("strip", "keep")
# The names that LangChain has for some of them.
_NAMED: Final = {"google_genai": "google", "mistralai": "mistral", "together": "togetherai"}
_RENAMED: Final = {
    "openai_api_base": "base_url",
    "anthropic_api_url": "base_url",
    "openai_api_key": "api_key",
    "anthropic_api_key": "api_key",
    "google_api_key": "api_key",
    "model_name": "model",
    "request_timeout": "timeout",
    "default_headers": "headers",
    "max_completion_tokens": "max_tokens",
}
# What clients of other libraries take and what is decided here otherwise.
_DROPPED: Final = frozenset({"max_retries", "rate_limiter", "streaming", "configurable_fields"})
_ENV: Final = re.compile(r"\$\{\s*env\.([A-Za-z_]\w*)\s*\}|\$\{\s*env\[['\"](\w+)['\"]\]\s*\}")


class WrittenModel(ScriptPart, extra="allow"):
    """A model as a script writes it; further keys are options of a chat model."""

    model: str
    provider: Any = "openai"
    config: OrAbsent[dict[Any, Any]] = None
    params: OrAbsent[dict[Any, Any]] = None
    rate_limiter: OrAbsent[dict[Any, Any]] = None
    pricing: OrAbsent[dict[Any, Any]] = None


_OWN: Final = ("name", *(key for key in WrittenModel.model_fields if key != "model"))


class ModelEntry(NamedTuple):
    """A model: its protocol and the options of a chat model; calls per minute if it says so.

    `reasoning` says whether answers keep the reasoning before them.
    """

    protocol: str
    options: dict[str, Any]
    requests_per_minute: float | None = None
    reasoning: str = "keep"


def read_models(
    raw: Any,
    loc: Loc,
    mistakes: MistakeCollector,
    over: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """Return the entries of `models` by name: a list of `{name, …}` or a mapping.

    `over` are those of the script, over which a variant lays its own: each is checked over them.
    """
    models: dict[str, dict[str, Any]] = {}
    for name, entry, at in _named(raw, loc, mistakes):
        if name in models:
            mistakes.add((*at, "name"), f"duplicate model '{name}'")
            continue
        models[name] = entry
        _check({**over.get(name, {}), **entry}, at, mistakes)
    return models


def _named(
    raw: Any, loc: Loc, mistakes: MistakeCollector
) -> Iterator[tuple[str, dict[str, Any], Loc]]:
    """Yield name, entry and place of each model; note what has none."""
    entries: list[tuple[Any, Any, Loc]]
    if isinstance(raw, Mapping):
        entries = [(str(name), entry, (*loc, str(name))) for name, entry in raw.items()]
    elif isinstance(raw, list):
        entries = [
            (entry.get("name") if isinstance(entry, Mapping) else None, entry, (*loc, index))
            for index, entry in enumerate(raw)
        ]
    else:
        if raw is not None:
            mistakes.add(loc, f"expected a list of models, got {describe(raw)}")
        return
    for name, entry, at in entries:
        if not isinstance(entry, Mapping):
            mistakes.add(at, f"expected {{name, provider, model}}, got {describe(entry)}")
        elif not isinstance(name, str) or not name:
            mistakes.add((*at, "name"), "is required")
        else:
            yield name, {str(key): value for key, value in entry.items() if key != "name"}, at


def _check(entry: Mapping[str, Any], loc: Loc, mistakes: MistakeCollector) -> None:
    if "import_from" in entry:
        message = "a model in Python is not supported; give 'provider' and 'model'"
        mistakes.add((*loc, "import_from"), message)
        return
    if read_shape(WrittenModel, entry, loc, mistakes) is None:
        return
    provider = entry.get("provider", "openai")
    if provider not in PROTOCOLS and not model_entry(entry).options.get("base_url"):
        hint = suggest(provider, (*PROTOCOLS, *SERVICES, *_NAMED))
        message = f"unknown provider {describe(provider)}.{hint} With 'base_url' any name will do"
        mistakes.add((*loc, "provider"), message)
        return
    _check_options(entry, loc, mistakes)


def _check_options(entry: Mapping[str, Any], loc: Loc, mistakes: MistakeCollector) -> None:
    from pydantic import ValidationError

    from evalcore.providers.chat import ChatOptions

    _, options, _, reasoning = model_entry(entry)
    if reasoning not in _REASONING:
        mistakes.add((*loc, "reasoning"), f"expected 'strip' or 'keep', got {describe(reasoning)}")
    key = options.get("api_key")
    if isinstance(key, str) and not re.fullmatch(r"\s*\$\{\{.*\}\}\s*", key, re.DOTALL):
        message = "a key must not stand in a file; write ${{ NAME }} or ${env.NAME}"
        mistakes.add((*loc, "config", "api_key"), message)
    for literal in literals_of_target({"parameters": options.get("parameters")}):
        mistakes.add((*loc, *literal.path), literal.message("${env.NAME}"))
    try:
        ChatOptions.model_validate(options)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            at = (*loc, *(str(part) for part in each["loc"]))
            mistakes.add(at, str(each["msg"]).removeprefix("Value error, "))


def model_entry(entry: Mapping[str, Any]) -> ModelEntry:
    """Return an entry as the protocol that it speaks and the options of a chat model."""
    from evalcore.providers.chat import ChatOptions

    provider = entry.get("provider", "openai")
    own = {key: value for key, value in entry.items() if key not in _OWN}
    flat = {**dict(entry.get("config") or {}), **dict(entry.get("params") or {}), **own}
    options: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for key, value in flat.items():
        name = _RENAMED.get(key, key)
        if name == "reasoning" and isinstance(value, str):
            continue  # any other value is a parameter of the provider
        if key in _DROPPED or value is None:
            continue
        if name in ChatOptions.model_fields:
            options[name] = _references(value)
        else:
            parameters[name] = value
    service = _NAMED.get(provider, provider)
    if service in SERVICES and not options.get("base_url"):
        options["base_url"], variable = SERVICES[service]
        options.setdefault("api_key", f"${{{{ {variable} }}}}")
    if parameters:
        options["parameters"] = {**dict(options.get("parameters") or {}), **parameters}
    rate = (entry.get("rate_limiter") or {}).get("requests_per_second")
    per_minute = rate * 60 if isinstance(rate, int | float) and rate > 0 else None
    reasoning = flat.get("reasoning")
    return ModelEntry(
        provider if provider in PROTOCOLS else "openai",
        options,
        per_minute,
        reasoning if isinstance(reasoning, str) else "keep",
    )


def merged_models(
    models: Mapping[str, Mapping[str, Any]], over: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return the entries with those of a variant laid over them, key by key."""
    return {name: {**models.get(name, {}), **over.get(name, {})} for name in {**models, **over}}


def _references(value: Any) -> Any:
    """Return `${{ NAME }}` for `${env.NAME}`: it is read where the model is asked."""
    if isinstance(value, str):
        return _ENV.sub(lambda match: f"${{{{ {match[1] or match[2]} }}}}", value)
    if isinstance(value, Mapping):
        return {key: _references(item) for key, item in value.items()}
    return value


DEFAULT_MODEL: Final = "default"
_CALL: Final = ("prompt", "system", "system_message", "model_ref", "config")
TEMPLATES: Final = ("prompt", "system", "system_message")
_MOST_TURNS: Final = 25
_EXTRACT: Final = ("first", "last", "all", "none")
_BLOCK: Final = re.compile(r"(?:^|\n)```json\s*\n(.*?)\n```(?:\n|$)", re.DOTALL)


class ModelParameters(ScriptPart):
    """What a request takes beside its messages; the provider checks the values."""

    temperature: Any = None
    max_tokens: Any = None
    top_p: Any = None
    seed: Any = None
    stop: Any = None
    response_format: Any = None
    tool_choice: Any = None


class ModelConfig(ModelParameters):
    """The `config` of a tool that asks a model."""

    model_ref: str | None = None
    system: str | None = None
    system_message: str | None = None
    prompt: str | None = None
    tools: Any = None
    extract_json: Any = None
    parameters: OrAbsent[dict[Any, Any]] = None

    @field_validator("extract_json")
    @classmethod
    def _check_extract(cls, written: Any) -> Any:
        if not isinstance(written, bool | None) and written not in _EXTRACT:
            raise ValueError("expected true, false, first, last, all or none")
        return written


_PARAMETERS: Final = tuple(ModelParameters.model_fields)


class ModelTool(Tool):
    """Asks the model that `model_ref` names; `tools` are what it may call meanwhile."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self.name = name
        self.config = dict(config)
        self.tools: dict[str, Tool] = {}

    @cached_property
    def _templates(self) -> dict[str, Tree]:
        return {key: compile_tree(self.config[key]) for key in TEMPLATES if key in self.config}

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return _CALL

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Return the answer's text, or the JSON in it (`extract_json`); raise `ProviderError`."""
        run.warn_of_unknown(self.name, params, _CALL)
        config = self._config(params, scope)
        prompt = params.get("prompt", config.get("prompt"))
        if prompt is None:
            raise ToolError("ValidationError", f"{self.name}: parameter 'prompt' is required")
        chat = run.model(str(config.get("model_ref") or DEFAULT_MODEL))
        messages: list[Mapping[str, Any]] = []
        system = config.get("system_message") or config.get("system")
        if system:
            messages.append({"role": "system", "content": text_of(system)})
        messages.append({"role": "user", "content": text_of(prompt)})
        parameters = dict(config.get("parameters") or {})
        parameters |= {key: config[key] for key in _PARAMETERS if config.get(key) is not None}
        tools, texts = tuple(map(_described, self.tools, self.tools.values())), []
        for _ in range(_MOST_TURNS):
            request = chat.request(messages, parameters=parameters, tools=tools)
            reply = chat.read(await run.complete(request))
            if reply.text:
                texts.append(reply.text)
            if not reply.tool_calls or not self.tools:
                return _result("\n".join(texts), config.get("extract_json"), run)
            messages += await self._answers(reply, scope, run)
        message = f"{self.name}: the model called tools {_MOST_TURNS} times without an answer"
        raise ToolError("LimitError", message)

    async def _answers(self, reply: Reply, scope: Scope, run: Iteration) -> list[Mapping[str, Any]]:
        """Call the tools that the model asked for; return its message and their answers."""
        calls = [dict(call) for call in reply.tool_calls]
        messages: list[Mapping[str, Any]] = [
            {"role": "assistant", "content": reply.text, "tool_calls": calls}
        ]
        for call in calls:
            content = await self._answer(call, scope, run)
            messages.append({"role": "tool", "tool_call_id": call.get("id"), "content": content})
        return messages

    async def _answer(self, call: Mapping[str, Any], scope: Scope, run: Iteration) -> str:
        tool, arguments = self.tools.get(str(call.get("name"))), call.get("arguments")
        if tool is None:
            return f"Error: there is no tool '{call.get('name')}'"
        if not isinstance(arguments, Mapping):
            return f"Error: the arguments are no mapping: {arguments}"
        try:
            return text_of(await tool.call(dict(arguments), scope, run))
        except Exception as error:
            # The model is told, and may go another way; a limit of the run ends the iteration.
            if not is_caught(error, ("*",)):
                raise
            return f"Error: {kind_of(error)}: {error}"

    def _config(self, params: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
        """Return the configuration, its prompts filled, with what a call says laid over it."""
        own = params.get("config")
        if own is not None and not isinstance(own, Mapping):
            message = f"{self.name}: 'config' is a mapping, not {describe(own)}"
            raise ToolError("ValidationError", message)
        overrides = {
            key: params[key]
            for key in ("model_ref", "system", "system_message")
            if params.get(key) is not None
        }
        if "system" in overrides:
            overrides.setdefault("system_message", overrides["system"])
        overlay = {**dict(own or {}), **overrides}
        filled = {
            key: template.render(scope)
            for key, template in self._templates.items()
            if key not in overlay
        }
        return {**self.config, **filled, **overlay}


def _described(name: str, tool: Tool) -> Mapping[str, Any]:
    """Return what a model is told of a tool."""
    properties: dict[str, Any] = {each: {} for each in tool.parameters() or ()}
    schema = tool.schema() or {"type": "object", "properties": properties}
    return {"name": name, "description": tool.description or "", "parameters": schema}


def _result(text: str, extract: Any, run: Iteration) -> Any:
    """Return the text, or the value of the JSON blocks in it that `extract` names."""
    if extract in (None, False, "none"):
        return text
    blocks = [block.strip() for block in _BLOCK.findall(text) if block.strip()]
    if extract == "all" and blocks:
        return [_parsed(block, run) for block in blocks]
    chosen = text if not blocks else blocks[-1] if extract == "last" else blocks[0]
    return _parsed(chosen, run)


def _parsed(text: str, run: Iteration) -> Any:
    try:
        return parse_storable(text)
    except ValueError:
        run.warn("the model's answer is not JSON; it is taken as text")
        return text
