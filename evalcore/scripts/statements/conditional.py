"""`if`: one of two ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from evalcore.scripts.statements.statement import (
    OptionalBody,
    RequiredBody,
    Statement,
    Template,
    any_waits,
    run_body,
)

if TYPE_CHECKING:
    from evalcore.scripts.iteration import Iteration, Scope


class If(Statement):
    """Runs `then` where the condition is true, else `else`."""

    condition: Template = Field(alias="if")
    then: RequiredBody
    otherwise: OptionalBody = Field(default=None, alias="else")

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether one of the ways waits."""
        return any_waits((self.then, self.otherwise), asked_tools)

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the result of the way; null without one."""
        if self.condition.render(scope):
            return await run_body(self.then, scope, run)
        if self.otherwise is not None:
            return await run_body(self.otherwise, scope, run)
        return None
