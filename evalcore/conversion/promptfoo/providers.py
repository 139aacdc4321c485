"""The providers of a configuration as targets."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from evalcore.conversion.converted import Notes, VariableText, unique_id
from evalcore.conversion.promptfoo.checks_module import ChecksModule
from evalcore.conversion.promptfoo.files import (
    NotTakenOverError,
    is_reference,
    named_files,
    python_reference,
    read_value,
)
from evalcore.conversion.promptfoo.module_text import PROMPT_KEY
from evalcore.conversion.promptfoo.templates import placeholders
from evalcore.conversion.promptfoo.transforms import json_path
from evalcore.targets.templates import PLACEHOLDER
from evalcore.trust.secret_options import SecretOption

Target = dict[str, Any]

_SAME: Final = ("temperature", "max_tokens", "top_p", "seed", "stop", "response_format")
_RENAMED: Final = {
    "apiBaseUrl": "base_url",
    "maxTokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "topP": "top_p",
}
_KEYS: Final = ("apiKey", "apiKeyEnvar")
_ENV: Final = re.compile(r"^\{\{\s*env\.(\w+)\s*\}\}$")
_ENV_MARK: Final = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")
_DOUBLE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_DUMPED: Final = re.compile(r"\{\{\s*prompt\s*\|\s*dump\s*\}\}")
_WITHOUT_EFFECT: Final = ("label", "id", "config", "delay")
_MODELS: Final = re.compile(
    r"^(?:(?P<openai>openai)(?::(?:chat|completion|responses))?"
    r"|(?P<anthropic>anthropic)(?::messages|:completion)?"
    r"|(?P<ollama>ollama)(?::chat|:completion)?):(?P<model>.+)$"
)
# What stands in the position of a model and is none that chats.
_NO_CHAT: Final = re.compile(
    r"(?:agents|assistant|chatkit|claude-agent-sdk|claude-code|codex-app-server|codex-sdk"
    r"|embeddings?|image|moderation|realtime|speech|transcription|tts|video)(?::.*)?"
)
# promptfoo's names of providers whose models `any-llm` asks, and any-llm's names of them.
_ANY_LLM: Final = {
    "azure": "azureopenai",
    "bedrock": "bedrock",
    "cerebras": "cerebras",
    "cohere": "cohere",
    "databricks": "databricks",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "google": "gemini",
    "groq": "groq",
    "huggingface": "huggingface",
    "mistral": "mistral",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "togetherai": "together",
    "vertex": "vertexai",
    "xai": "xai",
}
_HTTP: Final[Mapping[str, Any]] = {"method": str, "headers": dict, "body": (str, dict, list)}
_DOCUMENTS: Final = (".yaml", ".yml", ".json")
_OLLAMA: Final = "http://localhost:11434/v1"
_PLACEHOLDER: Final = re.compile(r"\{\{\s*prompt\s*\}\}")


class Providers:
    """Reads providers; `targets` are the targets so far, by their names."""

    def __init__(self, module: ChecksModule, notes: Notes, folder: Path) -> None:
        self._module, self._notes, self._folder = module, notes, folder
        self.targets: dict[str, Target] = {}
        self.transforms: dict[str, str] = {}

    def read_all(self, written: Any, key: str) -> list[Target]:
        """Return the targets of the configuration's providers; note those without a counterpart."""
        entries = written if isinstance(written, list) else [written] if written else []
        targets = []
        positioned = [
            each
            for index, entry in enumerate(entries)
            for each in self._of_files(entry, f"{key}[{index}]")
        ]
        for position, entry in positioned:
            target = self.read(entry, position)
            if target is not None:
                targets.append(target)
        return targets

    def _of_files(self, entry: Any, position: str) -> list[tuple[str, Any]]:
        """Return an entry, or those of the YAML or JSON file that it names, with their position."""
        if not (is_reference(entry) and entry.endswith(_DOCUMENTS)):
            return [(position, entry)]
        try:
            values = [read_value(path) for path in named_files(self._folder, entry)]
        except NotTakenOverError as error:
            self._notes.add(f"the providers are left out: {error}", position)
            return []
        listed = [
            each for value in values for each in (value if isinstance(value, list) else [value])
        ]
        return [(f"{position} ({number})", each) for number, each in enumerate(listed, 1)]

    def read(self, entry: Any, position: str, name: str | None = None) -> Target | None:
        """Return the target of a provider, None and a note if it can be none."""
        identity, options = _identity(entry)
        config = options.get("config") or {}
        try:
            target = self._target(identity, config if isinstance(config, Mapping) else {}, position)
        except NotTakenOverError as error:
            self._notes.add(f"the provider {identity or entry!r} is left out: {error}", position)
            return None
        label = name or str(options.get("label") or identity)
        self._note_unfilled(target, position)
        target = {"name": unique_id(label, self.targets), **_with_variables(target)}
        for key in options.keys() - {*_WITHOUT_EFFECT, "transform"}:
            self._notes.add(f"'{key}' of a provider is not taken over", position)
        if isinstance(options.get("transform"), str):
            self.transforms[target["name"]] = options["transform"]
        self.targets[target["name"]] = target
        return target

    def _note_unfilled(self, target: Target, position: str) -> None:
        """Note the placeholders that evalcore does not fill in."""
        for mark in placeholders(target):
            if _ENV_MARK.fullmatch(mark) is None:
                reason = f"{mark} is not filled in: {{{{prompt}}}} and {{{{env.NAME}}}} are"
                self._notes.add(reason, position)

    def _target(self, identity: str, config: Mapping[str, Any], position: str) -> Target:
        if not identity:
            raise NotTakenOverError("it has no 'id'")
        if identity == "echo":
            return {"provider": "echo"}
        model = _MODELS.match(identity)
        if model is not None and not _NO_CHAT.fullmatch(model["model"]):
            return self._model(model, config, position)
        service, _, rest = identity.partition(":")
        if service in _ANY_LLM and rest:
            return self._any_llm(service, rest, config, position)
        for prefix, read in _READERS.items():
            if identity.startswith(prefix):
                return read(self, identity, config, position)
        if python_reference(identity) is not None:
            return self._python(identity, config, position)
        raise NotTakenOverError(
            "it has no counterpart; a model behind OpenAI's protocol is a target with 'base_url'"
        )

    def _model(self, match: re.Match[str], config: Mapping[str, Any], position: str) -> Target:
        provider = "anthropic" if match["anthropic"] else "openai"
        target: Target = {"provider": provider, "model": match["model"]}
        if match["ollama"]:
            target["base_url"] = _OLLAMA
        return self._with_options(target, config, position)

    def _any_llm(self, service: str, rest: str, config: Mapping[str, Any], position: str) -> Target:
        kind, _, model = rest.partition(":")
        name = model if kind in ("chat", "completion", "converse") and model else rest
        self._notes.add(
            "models of other services are asked by any-llm: pip install "
            "'evalcore-pipeline[any-llm]'; credentials are those of its environment"
        )
        target: Target = {"provider": "any-llm", "model": f"{_ANY_LLM[service]}:{name}"}
        return self._with_options(target, config, position)

    def _with_options(self, target: Target, config: Mapping[str, Any], position: str) -> Target:
        for key, value in config.items():
            name = _RENAMED.get(key, key)
            if name in _SAME or name == "base_url":
                target[name] = value
            elif key not in _KEYS:
                self._notes.add(f"'{key}' of a model is not taken over", position)
        self._key(target, config, position)
        return target

    def _key(self, target: Target, config: Mapping[str, Any], position: str) -> None:
        written = config.get("apiKey")
        reference = _ENV.match(written) if isinstance(written, str) else None
        variable = reference[1] if reference else config.get("apiKeyEnvar")
        if variable:
            target["api_key"] = VariableText(f"${{{{ {variable} }}}}")
            if variable not in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
                reason = f"name {variable} in a .env file or in `readable_names`, it is a key"
                self._notes.add(reason, position)
        elif written:
            self._notes.add("a key is not copied: it is read from the environment", position)

    def _command(self, identity: str, _config: Any, _position: str) -> Target:
        words = shlex.split(identity.partition(":")[2].strip())
        if not words:
            raise NotTakenOverError("it names no program")
        self._notes.add("exec: the program gets the prompt only, no options and no context")
        return {"provider": "command", "command": [*words, "{prompt}"]}

    def _drop_keys(self, options: dict[str, Any], position: str) -> None:
        for name in [name for name, value in options.items() if _is_key(name, value)]:
            del options[name]
            self._notes.add(f"'{name}' is a key, which is not copied", position)

    def _python(self, identity: str, config: Mapping[str, Any], position: str) -> Target:
        reference = python_reference(identity.removeprefix("python:"))
        if reference is None:
            raise NotTakenOverError("it names no Python file")
        options = _with_variables(dict(config))
        self._drop_keys(options, position)
        function = self._module.add_provider(reference[0], reference[1] or "call_api", identity)
        target = {"provider": "python", "callable": self._module.callable(function)}
        return target | ({"config": options} if options else {})

    def _http(self, identity: str, config: Mapping[str, Any], position: str) -> Target:
        url = config.get("url") or (identity if "://" in identity else None)
        if not isinstance(url, str):
            raise NotTakenOverError("it has no 'url'")
        target: Target = {"provider": "http", "url": _filled(url)}
        for key, kinds in _HTTP.items():
            if key in config and not isinstance(config[key], kinds):
                raise NotTakenOverError(f"its '{key}' is no value of that kind")
            if key in config:
                value = _json_body(config) if key == "body" else config[key]
                for braces in PLACEHOLDER.finditer(_DOUBLE.sub("", str(value))):
                    self._notes.add(f"{braces[0]} is a placeholder here, and replaced", position)
                target[key] = _filled(value)
        self._drop_keys(target.get("headers") or {}, position)
        transform = config.get("transformResponse") or config.get("responseParser")
        if transform is not None:
            path = json_path(str(transform), ("json", "output"))
            if path is None:
                self._notes.add("transformResponse: JavaScript is not taken over", position)
            elif path != "$":
                target["response_path"] = path
        for key in config.keys() - {
            "url",
            "method",
            "headers",
            "body",
            "transformResponse",
            "responseParser",
        }:
            self._notes.add(f"'{key}' of an HTTP provider is not taken over", position)
        return target


_READERS: Final[Mapping[str, Callable[[Providers, str, Any, str], Target]]] = {
    "exec:": Providers._command,
    "python:": Providers._python,
    "http": Providers._http,
}


def _is_key(name: str, value: Any) -> bool:
    """Whether a header or an option holds a key itself, and no reference to one."""
    return isinstance(value, str) and SecretOption(("headers", name), value).is_literal


def _identity(entry: Any) -> tuple[str, Mapping[str, Any]]:
    """Return a provider's id and its options: `id`, `{id, config}`, or `{ID: {config}}`."""
    if isinstance(entry, str):
        return entry, {}
    if not isinstance(entry, Mapping):
        return "", {}
    if isinstance(entry.get("id"), str):
        return entry["id"], entry
    if len(entry) == 1:
        ((identity, options),) = entry.items()
        return str(identity), options if isinstance(options, Mapping) else {}
    return "", entry


def _json_body(config: Mapping[str, Any]) -> Any:
    """Return the body; one that is the text of JSON as its value, so that quotes are escaped."""
    body, headers = config["body"], config.get("headers") or {}
    kind = next((v for k, v in headers.items() if str(k).lower() == "content-type"), "json")
    if not isinstance(body, str) or "json" not in str(kind) or body.strip()[:1] not in ("{", "["):
        return body
    try:
        return json.loads(_DUMPED.sub('"{{prompt}}"', body))
    except ValueError:
        return body


def with_prompt(target: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """Return the `config` under which a target is asked the prompt at `key` of a case's input.

    `target` is None for one that another file defines.
    """
    is_python = target is not None and target["provider"] == "python"
    return {PROMPT_KEY: key} if is_python else {"prompt_template": f"{{input.{key}}}"}


def _filled(value: Any) -> Any:
    """Return a value with `{{prompt}}` and `{{env.NAME}}` as targets write them."""
    if isinstance(value, str):
        return _with_variables(_PLACEHOLDER.sub("{prompt}", value))
    if isinstance(value, Mapping):
        return {key: _filled(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_filled(member) for member in value]
    return value


def _with_variables(value: Any) -> Any:
    """Return a value with `{{env.NAME}}` as suites write it."""
    if isinstance(value, str) and _ENV_MARK.search(value):
        return VariableText(_ENV_MARK.sub(r"${{ \1 }}", value))
    if isinstance(value, Mapping):
        return {key: _with_variables(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_variables(member) for member in value]
    return value
