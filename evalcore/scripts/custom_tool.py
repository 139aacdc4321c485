"""Tools whose body is statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import DEEPEST_CALL, Iteration, Scope
from evalcore.scripts.statements.statement import Body, any_waits, run_body
from evalcore.scripts.tool_parameters import ToolParameter, checked_input, json_schema


class CustomTool:
    """Runs its body, which sees the parameters and then the caller's scope.

    What the body stores is its own.
    """

    def __init__(self, name: str, description: str, parameters: Sequence[ToolParameter]) -> None:
        """Take what is known before the body is read: that may call the tool itself."""
        self.name = name
        self.description = description
        self._parameters = tuple(parameters)
        self._names = tuple(parameter.name for parameter in parameters)
        self.body = Body((), listed=True)

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether the body waits."""
        if id(self) in asked_tools:
            return False
        asked_tools.add(id(self))
        return any_waits((self.body,), asked_tools)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the names of the parameters."""
        return self._names

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Return the result of the body; raise `ToolError` for parameters that do not fit."""
        for name in params:
            if name not in self._names:
                run.warn(f"tool '{self.name}' has no parameter '{name}'; it is ignored")
        values = checked_input(self.name, self._parameters, params)
        depth = scope.get(_DEPTH, 0) + 1
        if depth > DEEPEST_CALL:
            message = f"{self.name}: more than {DEEPEST_CALL} tools call each other"
            raise ToolError("RecursionError", message)
        return await run_body(self.body, {**scope, **values, _DEPTH: depth}, run)


# How many tools are being called within each other: of this line of calls, not of others beside it.
_DEPTH = "\0depth"
