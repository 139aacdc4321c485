"""Tools whose body is statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import DEEPEST_CALL, Iteration, Scope
from evalcore.scripts.statements import Body

if TYPE_CHECKING:
    from evalcore.scripts.tool_parameters import Parameter


class CustomTool:
    """Runs its body, which sees the parameters and then the caller's scope.

    What the body stores is its own.
    """

    def __init__(self, name: str, description: str, parameters: Sequence[Parameter]) -> None:
        """Take what is known before the body is read: that may call the tool itself."""
        self.name = name
        self.description = description
        self._parameters = tuple(parameters)
        self._names = tuple(parameter.name for parameter in parameters)
        self.body = Body((), listed=True)

    def waits(self, seen: set[int]) -> bool:
        """Whether the body waits."""
        from evalcore.scripts.interpret import waits

        if id(self) in seen:
            return False
        seen.add(id(self))
        return waits(self.body, seen)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the names of the parameters."""
        return self._names

    def schema(self) -> dict[str, Any]:
        """Return what a model is told of the parameters."""
        from evalcore.scripts.tool_parameters import json_schema

        return json_schema(self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Return the result of the body; raise `ToolError` for parameters that do not fit."""
        from evalcore.scripts.interpret import run_body
        from evalcore.scripts.tool_parameters import checked_input

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
