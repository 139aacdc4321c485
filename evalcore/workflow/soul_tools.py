"""Tools that souls may call: what the model is told of them, and what runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from evalcore.declared.types import Seconds, Text
from evalcore.workflow.part import WorkflowPart

TOOL_TIMEOUT_S: Final = 30.0
_TEXT: Final = {"type": "string"}


class ToolCallRequest(WorkflowPart):
    """The request of a tool; `{{ name }}` stands for an argument, `${{ NAME }}` for a variable."""

    method: Text = "GET"
    url: Text
    headers: dict[str, str] | None = None
    body_template: str | None = None
    response_path: str | None = None


class SoulTool(WorkflowPart):
    """One tool: the function that the model sees (`name`), and what a call of it does.

    `python` runs `main(args)` of `code` in a process of its own, `request` sends `request`; the
    others are built in.
    """

    name: Text
    description: str = ""
    parameters: dict[str, Any]
    executor: Literal["python", "request", "http", "file_io", "delegate"]
    code: str | None = None
    request: ToolCallRequest | None = None
    timeout_seconds: Seconds = TOOL_TIMEOUT_S

    def offer(self, exits: Iterable[str] = ()) -> dict[str, Any]:
        """Return the tool as a model is told of it; `exits` are those of the block that asks."""
        parameters = self.parameters
        ports = list(exits)
        if self.executor == "delegate" and ports:
            port = {**_TEXT, "enum": ports}
            parameters = {**parameters, "properties": {**parameters["properties"], "port": port}}
        return {"name": self.name, "description": self.description, "parameters": parameters}


def _built_in(executor: Any, name: str, description: str, **parameters: Any) -> SoulTool:
    required = [key for key, schema in parameters.items() if schema.pop("required", True)]
    schema = {"type": "object", "properties": parameters, "required": required}
    return SoulTool(name=name, description=description, parameters=schema, executor=executor)


def _optional(**schema: Any) -> dict[str, Any]:
    return {**schema, "required": False}


def built_in_tools() -> Mapping[str, SoulTool]:
    """Return the tools that need no file, by the id that souls name."""
    return MappingProxyType(
        {
            "http": _built_in(
                "http",
                "http_request",
                "Make an HTTP request to an external URL.",
                method=dict(_TEXT),
                url=dict(_TEXT),
                headers=_optional(type="object"),
                body=_optional(**_TEXT),
                response_path=_optional(**_TEXT),
            ),
            "file_io": _built_in(
                "file_io",
                "file_io",
                "Read or write files within a sandboxed directory.",
                action={**_TEXT, "enum": ["read", "write"]},
                path=dict(_TEXT),
                content=_optional(**_TEXT),
            ),
            "delegate": _built_in(
                "delegate",
                "delegate",
                "Delegate execution to an exit port.",
                port=dict(_TEXT),
                task={**_TEXT, "description": "The task instruction to delegate to this port."},
            ),
        }
    )
