"""Lists of tools as they stand in a file → tools by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe, suggest
from evalcore.scripts.builtin_tools import BUILT_IN, FOREIGN, find_builtin
from evalcore.scripts.custom_tool import CustomTool
from evalcore.scripts.iteration import Tool
from evalcore.scripts.mcp_tools import MCP, McpPrefix, McpTool, read_mcp_reference
from evalcore.scripts.mistake_collector import MistakeCollector
from evalcore.scripts.model_tools import ModelTool, read_model_config
from evalcore.scripts.python_tools import PythonTool, reference_of
from evalcore.scripts.statements import Compiler
from evalcore.scripts.toolbox import Found, NamedTool, Toolbox
from evalcore.scripts.words import check_keys, is_text

# Of a chat in a terminal; without effect on an evaluation.
IGNORED: Final = (
    "return_direct",
    "confidential",
    "require_confirmation",
    "ui_hint",
    "ui_hint_args",
)
_COMMON: Final = ("name", "description", "config", *IGNORED)
_MANY: Final = (
    "import_tools",
    "prefix",
    "filter",
    "force_ui_hints_for",
    "force_no_ui_hints_for",
    "ui_hints_args",
    "force_require_confirmation_for",
    "force_no_confirmation_for",
)


class ToolReader:
    """Reads lists of tools; what is wrong with them is noted."""

    def __init__(
        self,
        mistakes: MistakeCollector,
        servers: Mapping[str, Any],
        models: Mapping[str, Any] | None,
    ) -> None:
        """Take the MCP servers and the models by name (None: a model of any name)."""
        self._mistakes = mistakes
        self._servers = servers
        self._models = models
        self.imported: list[tuple[str, Loc]] = []

    def read(self, raw: Any, loc: Loc, parent: Toolbox | None, *, chain: bool = False) -> Toolbox:
        """Return the tools of a list inside of `parent`; each sees all others of its list."""
        box = Toolbox(parent, chain=chain)
        if not isinstance(raw, list):
            if raw is not None:
                self._mistakes.add(loc, f"expected a list of tools, got {describe(raw)}")
            return box
        bodies: list[tuple[CustomTool, Mapping[str, Any], Loc]] = []
        models: list[tuple[ModelTool, Loc]] = []
        for index, one in enumerate(raw):
            at = (*loc, index)
            tool = self._tool(one, at, box)
            if tool is None:
                continue
            self._add(tool, at, box)
            if isinstance(tool, CustomTool):
                bodies.append((tool, one, at))
            elif isinstance(tool, ModelTool):
                models.append((tool, at))
        for custom, definition, at in bodies:
            inner = box
            if definition.get("tools"):
                inner = self.read(definition["tools"], (*at, "tools"), box)
            custom.body = Compiler(inner, self._mistakes).body(definition["do"], (*at, "do"))
        for model, at in models:
            self._bind(model, at, box)
        return box

    def _add(self, tool: Tool, loc: Loc, box: Toolbox) -> None:
        other = box.add(Found(tool, loc, self._mistakes.line))
        if other is not None:
            where = other.line(other.loc)
            message = f"a tool '{tool.name}' is defined already, at {where}"
            self._mistakes.add(loc, message)

    def _tool(self, raw: Any, loc: Loc, box: Toolbox) -> Tool | None:
        if not isinstance(raw, Mapping):
            wanted = "a tool: {import_tool: …} or {name, input, do}"
            self._mistakes.add(loc, f"expected {wanted}, got {describe(raw)}")
            return None
        kinds = [kind for kind in ("import_tool", "import_tools", "do") if kind in raw]
        if len(kinds) != 1:
            has = " and ".join(f"'{kind}'" for kind in kinds) or "neither"
            self._mistakes.add(loc, f"a tool has 'import_tool' or 'do', this one has {has}")
            return None
        if kinds[0] == "do":
            return self._custom(raw, loc)
        if kinds[0] == "import_tools":
            self._many(raw, loc, box)
            return None
        return self._imported(raw, loc, box)

    def _custom(self, raw: Mapping[str, Any], loc: Loc) -> CustomTool | None:
        from evalcore.scripts.tool_parameters import read_parameters

        check_keys(raw, ("input", "tools", "do", *_COMMON), loc, self._mistakes)
        if "name" not in raw:
            self._mistakes.add((*loc, "name"), "is required")
            return None
        if not is_text(raw["name"], (*loc, "name"), self._mistakes):
            return None
        self._description(raw, loc)
        parameters = read_parameters(raw.get("input"), (*loc, "input"), self._mistakes)
        return CustomTool(raw["name"], str(raw.get("description") or ""), parameters)

    def _description(self, raw: Mapping[str, Any], loc: Loc) -> None:
        text = raw.get("description")
        if text is not None and not isinstance(text, str):
            self._mistakes.add((*loc, "description"), f"expected text, got {describe(text)}")

    def _imported(self, raw: Mapping[str, Any], loc: Loc, box: Toolbox) -> Tool | None:
        at = (*loc, "import_tool")
        check_keys(raw, ("import_tool", *_COMMON), loc, self._mistakes)
        self._description(raw, loc)
        reference, name, config = raw["import_tool"], raw.get("name"), raw.get("config")
        sound = is_text(reference, at, self._mistakes, what="module.symbol")
        if name is not None:
            sound = is_text(name, (*loc, "name"), self._mistakes) and sound
        if config is not None and not isinstance(config, Mapping):
            message = f"expected a mapping, got {describe(config)}"
            self._mistakes.add((*loc, "config"), message)
            sound = False
        if not sound:
            return None
        if reference.startswith(MCP):
            return self._mcp(reference, name, loc)
        known_tool = box.outside(reference)
        if known_tool is not None:
            return NamedTool(name or reference, known_tool)
        found = find_builtin(reference, name, config or {})
        if found is not None:
            if isinstance(found, ModelTool):
                self._check_model(found, loc)
            return found
        if reference.startswith(FOREIGN):
            there_is = f"of that package there is {', '.join(BUILT_IN)}"
            self._mistakes.add(at, f"there is no '{reference}' here; {there_is}")
            return None
        if reference_of(reference) is None:
            self._mistakes.add(at, f"'{reference}' names no Python symbol; write module.symbol")
            return None
        description = str(raw.get("description") or "")
        tool = PythonTool(name, reference, description, dict(config or {}))
        self.imported.append((tool.reference, at))
        return tool

    def _check_model(self, tool: ModelTool, loc: Loc) -> None:
        at = (*loc, "config")
        wrong = read_model_config(tool.config)
        if wrong is not None:
            self._mistakes.add((*at, wrong[0]), wrong[1])
        name = tool.config.get("model_ref", "default")
        if "model_ref" in tool.config and self._models is not None and name not in self._models:
            message = f"there is no model '{name}'.{suggest(name, self._models)}"
            self._mistakes.add((*at, "model_ref"), message)

    def _bind(self, tool: ModelTool, loc: Loc, box: Toolbox) -> None:
        """Give a model the tools that its configuration lists."""
        listed = tool.config.get("tools")
        if listed is None:
            return
        at = (*loc, "config", "tools")
        if not isinstance(listed, list):
            self._mistakes.add(at, f"expected a list of tools, got {describe(listed)}")
            return
        inline = [one for one in listed if isinstance(one, Mapping) and "match" not in one]
        inner = self.read(inline, at, box) if inline else box
        for index, one in enumerate(listed):
            if isinstance(one, str):
                found = box.find(one)
                if found is None:
                    hint = suggest(one, box.names())
                    self._mistakes.add((*at, index), f"there is no tool '{one}'.{hint}")
                else:
                    tool.tools[one] = found
            elif isinstance(one, Mapping) and isinstance(one.get("match"), list):
                tool.tools.update(_matching(box.visible(), one["match"], tool))
        if inline:
            tool.tools.update({name: entry.tool for name, entry in inner.tools.items()})

    def _mcp(self, reference: str, name: str | None, loc: Loc) -> McpTool | None:
        read = read_mcp_reference(reference)
        at = (*loc, "import_tool")
        if read is None:
            message = f"'{reference}' names no tool of a server; write {MCP}server/tool"
            self._mistakes.add(at, message)
            return None
        server, tool = read
        return McpTool(name or tool, server, tool) if self._has_server(server, at) else None

    def _has_server(self, server: str, loc: Loc) -> bool:
        if server in self._servers:
            return True
        message = f"the script's 'mcp' has no server '{server}'.{suggest(server, self._servers)}"
        self._mistakes.add(loc, message)
        return False

    def _many(self, raw: Mapping[str, Any], loc: Loc, box: Toolbox) -> None:
        """Open the names of all of a server's tools."""
        check_keys(raw, _MANY, loc, self._mistakes)
        at, reference, prefix = (*loc, "import_tools"), raw["import_tools"], raw.get("prefix", "")
        if not is_text(reference, at, self._mistakes, what=f"{MCP}server"):
            return
        if not reference.startswith(MCP):
            self._mistakes.add(at, f"imports tools of a server only: {MCP}server")
            return
        patterns = raw.get("filter", ["*"])
        if not isinstance(prefix, str) or not isinstance(patterns, list):
            self._mistakes.add(loc, "'prefix' is a text and 'filter' a list of patterns")
            return
        server = reference.removeprefix(MCP)
        if self._has_server(server, at):
            box.open.append(McpPrefix(prefix, server, [str(one) for one in patterns]))


def _matching(tools: Mapping[str, Tool], patterns: list[Any], own: Tool) -> dict[str, Tool]:
    from evalcore.scripts.mcp_tools import matches

    names = [str(one) for one in patterns]
    return {name: one for name, one in tools.items() if one is not own and matches(name, names)}
