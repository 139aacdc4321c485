"""Tools that ask a model: a prompt in, the answer out, other tools in between if it has any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from pydantic import field_validator

from evalcore.declared.types import OrAbsent
from evalcore.expressions.tree import Tree, compile_tree
from evalcore.jsonvalues import parse_storable
from evalcore.mistakes.wording import describe
from evalcore.model.exchange import Reply
from evalcore.scripts.failure import ToolError, is_caught, kind_of
from evalcore.scripts.iteration import Iteration, Scope, Tool, WaitingTool
from evalcore.scripts.score import text_of
from evalcore.scripts.statements.statement import ScriptPart

DEFAULT_MODEL: Final = "default"
_CALL: Final = ("prompt", "system", "system_message", "model_ref", "config")
TEMPLATES: Final = ("prompt", "system", "system_message")
_EXTRACT: Final = ("first", "last", "all", "none")
_BLOCK: Final = re.compile(r"(?:^|\n)```json\s*\n(.*?)\n```(?:\n|$)", re.DOTALL)
_MOST_TURNS: Final = 25


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


class ModelTool(WaitingTool):
    """Asks the model that `model_ref` names; `tools` are what it may call meanwhile."""

    def __init__(self, name: str, description: str, config: Mapping[str, Any]) -> None:
        self.name = name
        self.description = description
        self.config = dict(config)
        self.tools: dict[str, Tool] = {}

    @cached_property
    def _templates(self) -> dict[str, Tree]:
        return {key: compile_tree(self.config[key]) for key in TEMPLATES if key in self.config}

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return _CALL

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        text = {"type": "string"}
        properties = {"prompt": text, "system_message": text}
        return {"type": "object", "properties": properties, "required": ["prompt"]}

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Return the answer's text, or the JSON in it (`extract_json`); raise `ProviderError`."""
        for name in params:
            if name not in _CALL:
                run.warn(f"tool '{self.name}' has no parameter '{name}'; it is ignored")
        config = self._config(params, scope)
        prompt = params.get("prompt", config.get("prompt"))
        if prompt is None:
            raise ToolError("ValidationError", f"{self.name}: parameter 'prompt' is required")
        chat = run.models.find(str(config.get("model_ref") or DEFAULT_MODEL))
        messages: list[Mapping[str, Any]] = []
        system = config.get("system_message") or config.get("system")
        if system:
            messages.append({"role": "system", "content": text_of(system)})
        messages.append({"role": "user", "content": text_of(prompt)})
        parameters = dict(config.get("parameters") or {})
        parameters |= {key: config[key] for key in _PARAMETERS if config.get(key) is not None}
        texts: list[str] = []
        for _ in range(_MOST_TURNS):
            request = chat.request(messages, parameters=parameters, tools=self._described())
            reply = chat.read(await run.complete(request))
            if reply.text:
                texts.append(reply.text)
            if not reply.tool_calls or not self.tools:
                return _result("\n".join(texts), config.get("extract_json"), run)
            messages += await self._answers(reply, scope, run)
        message = f"{self.name}: the model called tools {_MOST_TURNS} times without an answer"
        raise ToolError("LimitError", message)

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

    def _described(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(
            {
                "name": name,
                "description": getattr(tool, "description", ""),
                "parameters": tool.schema(),
            }
            for name, tool in self.tools.items()
        )

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
        tool = self.tools.get(str(call.get("name")))
        if tool is None:
            return f"Error: there is no tool '{call.get('name')}'"
        arguments = call.get("arguments")
        if not isinstance(arguments, Mapping):
            return f"Error: the arguments are no mapping: {arguments}"
        try:
            return text_of(await tool.call(dict(arguments), scope, run))
        except Exception as error:
            # The model is told, and may go another way; a limit of the run ends the iteration.
            if not is_caught(error, ("*",)):
                raise
            return f"Error: {kind_of(error)}: {error}"


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
