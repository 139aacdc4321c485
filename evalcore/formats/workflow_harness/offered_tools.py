"""The tools that the souls of a workflow may call, and those that are not offered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from evalcore.formats.workflow_harness.custom_files import CustomFiles, referring
from evalcore.formats.workflow_harness.parts import read_part
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import describe
from evalcore.workflow.definition import SoulTool, ToolCallRequest
from evalcore.workflow.tools import built_in_tools

Warned = tuple[Loc, str]
_ARGUMENT: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_REQUEST: Final = ("method", "url", "headers", "body_template", "response_path")


def tools_of(
    raw: Mapping[str, Any],
    souls: Mapping[str, Mapping[str, Any]],
    custom: CustomFiles,
    problems: Problems,
    warned: list[Warned],
) -> dict[str, SoulTool]:
    """Return the tools, by id, that these souls name; `warned` takes what has no effect."""
    if not any(soul.get("tools") for soul in souls.values()):
        return {}
    declared = _declared(raw.get("tools"), problems)
    tools: dict[str, SoulTool] = {}
    missing: set[str] = set()
    for soul, written in souls.items():
        for name in written.get("tools") or ():
            loc: Loc = ("souls", soul, "tools")
            if name not in declared:
                message = f"soul '{soul}': the tool '{name}' is not offered: 'tools' of the file"
                warned.append((loc, f"{message} does not list it"))
            elif name not in tools and name not in missing:
                tool = _tool(name, declared[name], custom, problems)
                if tool is None:
                    missing.add(name)
                    message = f"soul '{soul}': the tool '{name}' is not offered: there is no"
                    warned.append((loc, f"{message} custom/tools/{name}.yaml"))
                else:
                    tools[name] = tool
    return tools


def _declared(written: object, problems: Problems) -> dict[str, Mapping[str, Any]]:
    """Return what `tools` of the file declares: ids, or definitions by id."""
    if written is None:
        return {}
    if isinstance(written, dict) and all(isinstance(tool, dict) for tool in written.values()):
        return written
    if isinstance(written, list) and all(isinstance(name, str) for name in written):
        return {name: {} for name in written}
    problems.add(("tools",), f"expected a list of ids of tools, got {describe(written)}")
    return {}


def _tool(
    name: str, definition: Mapping[str, Any], custom: CustomFiles, problems: Problems
) -> SoulTool | None:
    """Return a tool: built in, defined in the workflow file, or of a file of its own."""
    source = str(definition.get("source") or name).rpartition("/")[2]
    if definition.get("type") == "http":
        return _inline_request(name, definition, problems)
    return built_in_tools().get(source) or custom.tool(source)


def _inline_request(
    name: str, definition: Mapping[str, Any], problems: Problems
) -> SoulTool | None:
    written = {key: definition[key] for key in _REQUEST if definition.get(key) is not None}
    request = read_part(ToolCallRequest, written, ("tools", name), problems)
    if request is None:
        return None
    request = referring(request, problems, ("tools", name))
    arguments = dict.fromkeys(_arguments(written))
    properties = {argument: {"type": "string"} for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    return SoulTool(name=name, parameters=schema, executor="request", request=request)


def _arguments(written: Mapping[str, Any]) -> Iterator[str]:
    for text in written.values():
        for template in text.values() if isinstance(text, dict) else (text,):
            yield from _ARGUMENT.findall(str(template))


_UNUSED: Final = {
    "stall_thresholds": "see 'timeout_seconds'",
    "allowed_imports": "code may import any module",
}


def unused_keys(raw: Mapping[str, Any], souls: Mapping[str, Mapping[str, Any]]) -> Iterator[Warned]:
    """Yield what a workflow writes and nothing reads."""
    for name, block in raw["blocks"].items():
        for key in filter(block.get, _UNUSED):
            loc: Loc = ("blocks", name, key)
            yield loc, f"block '{name}': '{key}' has no effect; {_UNUSED[key]}"
        if block.get("stateful") and block["type"] in {"code", "http", "loop", "workflow"}:
            loc = ("blocks", name, "stateful")
            yield loc, f"block '{name}': 'stateful' has no effect; it asks no model"
    for name, soul in souls.items():
        if soul.get("assertions"):
            loc = ("souls", name, "assertions")
            yield loc, f"soul '{name}': 'assertions' have no effect; write them in the block"
    for name, declared in (raw.get("inputs") or {}).items():
        if declared.get("sensitive"):
            loc = ("inputs", name, "sensitive")
            yield loc, f"input '{name}': 'sensitive' has no effect; what cases give is stored"
    for key in raw.get("config") or ():
        if key not in {"model_name", "max_workflow_depth"}:
            yield ("config", key), f"'config.{key}' has no effect"
