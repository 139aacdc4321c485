"""`call`: a tool with its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PrivateAttr, field_validator

from evalcore.declared.types import Listed, Text
from evalcore.expressions.tree import Tree
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe, known_names
from evalcore.scripts.failure import ToolError, is_caught
from evalcore.scripts.iteration import Tool
from evalcore.scripts.statements.statement import Compiled, Statement

if TYPE_CHECKING:
    from evalcore.scripts.iteration import Iteration, Scope
    from evalcore.scripts.mistake_collector import MistakeCollector
    from evalcore.scripts.toolbox import Toolbox

_LISTED = 40


class CallTool(Statement):
    """Calls a tool; the exceptions that `catch` names give null."""

    call: Text
    params: Annotated[Tree | None, Compiled("params", skips_null=True)] = None
    catch: Text | Listed[Text] | None = None
    ui_hint: Any = None

    _tool: Tool = PrivateAttr()
    _given_names: frozenset[object] = PrivateAttr(frozenset())

    @property
    def tool(self) -> Tool:
        """The tool that is called."""
        return self._tool

    def gives(self, name: str) -> bool:
        """Whether a parameter of this name may be given."""
        return name in self._given_names or (self.params is not None and not self._given_names)

    @field_validator("call", mode="before")
    @classmethod
    def _check_call(cls, written: Any) -> Any:
        if isinstance(written, Mapping):
            advice = "list a tool under 'tools' with a 'name', and call that name"
            raise ValueError(f"expected the name of a tool, got a mapping; {advice}")
        return written

    @field_validator("catch", mode="before")
    @classmethod
    def _check_catch(cls, written: Any) -> Any:
        names = written if isinstance(written, list) else [written]
        if written is not None and not all(isinstance(name, str) and name for name in names):
            expected = "the name of an exception class, a list of such, or '*'"
            raise ValueError(f"expected {expected}, got {describe(written)}")
        return written

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether the tool waits."""
        return self._tool.waits(asked_tools)

    def bind(
        self, toolbox: Toolbox, raw: Mapping[str, Any], loc: Loc, mistakes: MistakeCollector
    ) -> bool:
        """Find the tool; warn of parameters that it does not have."""
        tool = toolbox.find(self.call)
        if tool is None:
            names = known_names(toolbox.names(), _LISTED)
            message = f"there is no tool '{self.call}'. {names}"
            mistakes.add((*loc, "call"), message)
            return False
        self._tool = tool
        written = raw.get("params")
        self._given_names = frozenset(written if isinstance(written, Mapping) else ())
        params, parameters = raw.get("params"), tool.parameters()
        if isinstance(params, Mapping) and parameters is not None:
            for key in params:
                if key not in parameters:
                    message = f"tool '{self.call}' has no parameter '{key}'; it is ignored"
                    mistakes.warn((*loc, "params", key), message)
        return True

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the tool's result."""
        params = {} if self.params is None else self.params.render(scope)
        if params is None:
            params = {}
        tool = self._tool
        if not isinstance(params, Mapping):
            raise ToolError("TypeError", f"the params of '{tool.name}' are no mapping")
        if not self.catch:
            return await tool.call(dict(params), scope, run)
        try:
            return await tool.call(dict(params), scope, run)
        except Exception as error:
            # An exception of a tool is its result where the statement catches it.
            if not is_caught(error, (self.catch,) if isinstance(self.catch, str) else self.catch):
                raise
            return None
