"""Lists of tools as they stand in a file → tools by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from evalcore.errors import UsageError
from evalcore.expressions.engine import ExpressionSyntaxError, plain_data
from evalcore.expressions.template import compile_tree
from evalcore.scripts.builtin_tools import BUILT_IN, FOREIGN, find_builtin
from evalcore.scripts.iteration import DEEPEST_CALL, Iteration, Scope, Tool, ToolError
from evalcore.scripts.mcp import MCP, McpTool, read_mcp_reference
from evalcore.scripts.models import TEMPLATES, ModelConfig, ModelTool
from evalcore.scripts.parameters import ToolParameter, checked_input, json_schema, read_parameters
from evalcore.scripts.statements import (
    Body,
    Compiled,
    MistakeCollector,
    ScriptPart,
    StatementCompiler,
    Toolbox,
    any_waits,
    read_shape,
    run_body,
)
from evalcore.shapes import Text
from evalcore.trust.imports import ImportPolicy
from evalcore.wording import Loc, describe, suggest


class CustomTool(Tool):
    """Runs its body, which sees the parameters and then the caller's scope.

    What the body stores is its own.
    """

    def __init__(self, shape: CustomToolShape, parameters: Sequence[ToolParameter]) -> None:
        """Take what is known before the body is read: that may call the tool itself."""
        self.name, self.description = shape.name, shape.description
        self._parameters = tuple(parameters)
        self._names = tuple(parameter.name for parameter in parameters)
        self.body = Body((), listed=True)

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether the body waits."""
        if id(self) in asked_tools:
            return False
        asked_tools.add(id(self))
        return any_waits((self.body,), asked_tools)

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the names of the parameters."""
        return self._names

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Return the result of the body; raise `ToolError` for parameters that do not fit."""
        run.warn_of_unknown(self.name, params, self._names)
        values = checked_input(self.name, self._parameters, params)
        depth = scope.get(_DEPTH, 0) + 1
        if depth > DEEPEST_CALL:
            message = f"{self.name}: more than {DEEPEST_CALL} tools call each other"
            raise ToolError("RecursionError", message)
        return await run_body(self.body, {**scope, **values, _DEPTH: depth}, run)


# How many tools are being called within each other: of this line of calls, not of others beside it.
_DEPTH = "\0depth"


_DOTTED: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*[.:][^\W\d]\w*")
# A function that takes one of these makes a tool.
_OF_FACTORIES: Final = ("tool_config",)
_METHODS: Final = ("run", "invoke", "_run")


def reference_of(text: str) -> str | None:
    """Return `module:symbol` for `module.symbol`; None if the text is neither.

    A lone name is a module and the symbol of that name in it.
    """
    if text.isidentifier():
        return f"{text}:{text}"
    if not _DOTTED.fullmatch(text):
        return None
    if ":" in text:
        return text
    module, _, symbol = text.rpartition(".")
    return f"{module}:{symbol}"


class _Loaded(NamedTuple):
    call: Callable[..., Any]
    names: tuple[str, ...] | None


class PythonTool(Tool):
    """Calls a function with the parameters as its keywords, in a thread of its own."""

    def __init__(
        self, name: str | None, reference: str, description: str, config: dict[str, Any]
    ) -> None:
        self.reference = reference_of(reference) or reference
        self.name = name or self.reference.rpartition(":")[2]
        self.description = description
        self._given_name = name
        self._config = config
        self._loaded: dict[ImportPolicy, _Loaded] = {}

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return what the function returns; `ForeignError` if it raises."""
        from evalcore.trust.imports import call_foreign

        function, names = self.load(run.imports)
        if names is not None:
            run.warn_of_unknown(self.name, params, names)
            params = {name: value for name, value in params.items() if name in names}
        return plain_data(await call_foreign(function, **params))

    def load(self, imports: ImportPolicy) -> _Loaded:
        """Import the symbol and make the tool; raise `EvalError`."""
        loaded = self._loaded.get(imports)
        if loaded is None:
            symbol = imports.load(self.reference)
            try:
                function = self._function(symbol)
            except (UsageError, ToolError):
                raise
            # A constructor or factory of the suite.
            except Exception as error:
                message = f"{self.reference}: {type(error).__name__}: {error}"
                raise UsageError(f"tool '{self.name}' cannot be made: {message}") from error
            loaded = self._loaded[imports] = _Loaded(function, _names_of(function))
        return loaded

    def _function(self, symbol: Callable[..., Any]) -> Callable[..., Any]:
        """Return the callable: an instance of a class, what a factory gives, or the function."""
        config = self._config
        if inspect.isclass(symbol):
            return self._callable(symbol(**config))
        names = _names_of(symbol)
        if names is not None and any(name in names for name in _OF_FACTORIES):
            offered = {
                "context": None,
                "tool_config": dict(config),
                "name": self._given_name,
                "description": self.description or None,
            }
            arguments = {
                name: value
                for name, value in offered.items()
                if name in names and (value is not None or name == "context")
            }
            return self._callable(symbol(**arguments))
        return self._callable(symbol(**config)) if config else symbol

    def _callable(self, product: Any) -> Callable[..., Any]:
        if callable(product):
            return product  # type: ignore[no-any-return] # foreign by nature
        for name in _METHODS:
            method = getattr(product, name, None)
            if callable(method):
                return method  # type: ignore[no-any-return] # foreign by nature
        message = f"{self.reference} gave a {type(product).__name__}, which cannot be called"
        raise UsageError(f"tool '{self.name}': {message}")


def _names_of(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names of the parameters; None if any is taken or they are unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY)


class _NamedTool(Tool):
    """A tool from further out, imported under a name."""

    def __init__(self, name: str, tool: Tool) -> None:
        self.name, self.description = name, tool.description
        self.waits, self.parameters = tool.waits, tool.parameters  # type: ignore[method-assign]
        self.schema, self.call = tool.schema, tool.call  # type: ignore[method-assign]


class ToolShape(ScriptPart):
    """What every tool has; the hints for a chat in a terminal have no effect on an evaluation."""

    name: Text | None = None
    description: str | None = None
    config: Any = None
    return_direct: Any = Field(default=None, exclude=True)
    confidential: Any = Field(default=None, exclude=True)
    require_confirmation: Any = Field(default=None, exclude=True)
    ui_hint: Any = Field(default=None, exclude=True)
    ui_hint_args: Any = Field(default=None, exclude=True)


class CustomToolShape(ToolShape):
    """A tool whose body is statements."""

    name: Text
    input: Any = None
    tools: Annotated[Any, Compiled("tools")] = None
    do: Annotated[Any, Compiled("body")]


class ImportedToolShape(ToolShape):
    """A tool of the project, of a server, of the script around it, or a Python symbol."""

    import_tool: Text
    config: dict[str, Any] | None = None


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
        for index, member in enumerate(raw):
            at = (*loc, index)
            tool = self._tool(member, at, box)
            if tool is None:
                continue
            self._add(tool, at, box)
            if isinstance(tool, CustomTool):
                bodies.append((tool, member, at))
            elif isinstance(tool, ModelTool):
                models.append((tool, at))
        for custom, definition, at in bodies:
            inner = box
            if definition.get("tools"):
                inner = self.read(definition["tools"], (*at, "tools"), box)
            custom.body = StatementCompiler(inner, self._mistakes).body(
                definition["do"], (*at, "do")
            )
        for model, at in models:
            self._bind(model, (*at, "config", "tools"), box)
        return box

    def _add(self, tool: Tool, loc: Loc, box: Toolbox) -> None:
        other = box.add(tool, self._mistakes.line(loc))
        if other is not None:
            self._mistakes.add(loc, f"a tool '{tool.name}' is defined already, at {other}")

    def _tool(self, raw: Any, loc: Loc, box: Toolbox) -> Tool | None:
        if not isinstance(raw, Mapping):
            expected = "a tool: {import_tool: …} or {name, input, do}"
            self._mistakes.add(loc, f"expected {expected}, got {describe(raw)}")
            return None
        kinds = [kind for kind in ("import_tool", "do") if kind in raw]
        if len(kinds) != 1:
            has = " and ".join(f"'{kind}'" for kind in kinds) or "neither"
            hint = "; import each tool of a server by its name" if "import_tools" in raw else ""
            self._mistakes.add(loc, f"a tool has 'import_tool' or 'do', this one has {has}{hint}")
            return None
        if kinds[0] == "do":
            return self._custom(raw, loc)
        shape = read_shape(ImportedToolShape, raw, loc, self._mistakes)
        return None if shape is None else self._imported(shape, loc, box)

    def _custom(self, raw: Mapping[str, Any], loc: Loc) -> CustomTool | None:
        parameters = read_parameters(raw.get("input"), (*loc, "input"), self._mistakes)
        shape = read_shape(CustomToolShape, raw, loc, self._mistakes)
        if shape is None:
            return None
        return CustomTool(shape, parameters)

    def _imported(self, shape: ImportedToolShape, loc: Loc, box: Toolbox) -> Tool | None:
        at = (*loc, "import_tool")
        reference, name, config = shape.import_tool, shape.name, shape.config or {}
        if reference.startswith(MCP):
            return self._mcp(reference, name, loc)
        outer = box.outside(reference)
        if outer is not None:
            return _NamedTool(name or reference, outer)
        builtin = find_builtin(reference, name, config)
        if isinstance(builtin, ModelTool):
            self._check_model(builtin, loc)
        if builtin is not None:
            return builtin
        if reference.startswith(FOREIGN):
            there_is = f"of that package there is {', '.join(BUILT_IN)}"
            self._mistakes.add(at, f"there is no '{reference}' here; {there_is}")
            return None
        if reference_of(reference) is None:
            self._mistakes.add(at, f"'{reference}' names no Python symbol; write module.symbol")
            return None
        tool = PythonTool(name, reference, shape.description or "", dict(config))
        self.imported.append((tool.reference, at))
        return tool

    def _check_model(self, tool: ModelTool, loc: Loc) -> None:
        at = (*loc, "config")
        read_shape(ModelConfig, tool.config, at, self._mistakes)
        for key in TEMPLATES:
            try:
                compile_tree(tool.config.get(key))
            except ExpressionSyntaxError as error:
                self._mistakes.add((*at, key, *error.path), str(error))
        name = tool.config.get("model_ref", "default")
        if "model_ref" in tool.config and self._models is not None and name not in self._models:
            message = f"there is no model '{name}'.{suggest(name, self._models)}"
            self._mistakes.add((*at, "model_ref"), message)

    def _bind(self, tool: ModelTool, loc: Loc, box: Toolbox) -> None:
        """Give a model the tools that its configuration lists: by name, or its own."""
        listed = tool.config.get("tools")
        if listed is None or not isinstance(listed, list):
            if listed is not None:
                self._mistakes.add(loc, f"expected a list of tools, got {describe(listed)}")
            return
        for index, member in enumerate(listed):
            if isinstance(member, str):
                named = box.find(member)
                if named is None:
                    hint = suggest(member, box.visible())
                    self._mistakes.add((*loc, index), f"there is no tool '{member}'.{hint}")
                else:
                    tool.tools[member] = named
        inline = [each for each in listed if not isinstance(each, str)]
        if inline:
            tool.tools.update(self.read(inline, loc, box).tools)

    def _mcp(self, reference: str, name: str | None, loc: Loc) -> McpTool | None:
        read = read_mcp_reference(reference)
        at = (*loc, "import_tool")
        if read is None:
            message = f"'{reference}' names no tool of a server; write {MCP}server/tool"
            self._mistakes.add(at, message)
            return None
        server, tool = read
        if server in self._servers:
            return McpTool(name or tool, server, tool)
        hint = suggest(server, self._servers)
        self._mistakes.add(at, f"the script's 'mcp' has no server '{server}'.{hint}")
        return None
