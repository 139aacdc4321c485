"""`starlark`: a script in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr, field_validator

from evalcore.expressions.budget import Budget
from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.expressions.starlark import check_starlark, run_starlark
from evalcore.mistakes.locations import Loc
from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import Tool
from evalcore.scripts.statements.statement import Statement
from evalcore.trust.calls import in_thread

if TYPE_CHECKING:
    from evalcore.scripts.iteration import Iteration, Scope
    from evalcore.scripts.mistake_collector import MistakeCollector
    from evalcore.scripts.toolbox import Toolbox


class Starlark(Statement):
    """Runs a script; it may call the tools that it names."""

    source: str = Field(alias="starlark")

    _tools: dict[str, Tool] = PrivateAttr(default_factory=dict)

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str) -> str:
        try:
            check_starlark(source)
        except ExpressionSyntaxError as error:
            raise ValueError(str(error)) from error
        return source

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - the method of all statements
        """Return True: the process is waited for."""
        return True

    def bind(
        self,
        toolbox: Toolbox,
        raw: Mapping[str, Any],  # noqa: ARG002
        loc: Loc,  # noqa: ARG002
        mistakes: MistakeCollector,  # noqa: ARG002
    ) -> bool:
        """Find the tools that the script names."""
        visible = toolbox.visible()
        self._tools = {name: tool for name, tool in visible.items() if name in self.source}
        return True

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the script's result."""
        loop = asyncio.get_running_loop()

        def function(name: str) -> Any:
            tool = self._tools[name]

            def called(*arguments: Any, **keywords: Any) -> Any:
                params = {**_named(name, tool.parameters(), arguments), **keywords}
                result = tool.call(params, scope, run)
                return asyncio.run_coroutine_threadsafe(result, loop).result()

            return called

        functions = {name: function(name) for name in self._tools}
        variables = {name: value for name, value in scope.items() if name.isidentifier()}
        return await in_thread(lambda: run_starlark(self.source, variables, Budget(), functions))


def _named(
    tool: str, parameters: tuple[str, ...] | None, arguments: tuple[Any, ...]
) -> dict[str, Any]:
    """Return positional arguments by the names of the tool's parameters."""
    if not arguments:
        return {}
    if parameters is None or len(arguments) > len(parameters):
        raise ToolError("TypeError", f"{tool}: name the arguments, as in {tool}(name=value)")
    return dict(zip(parameters, arguments, strict=False))
