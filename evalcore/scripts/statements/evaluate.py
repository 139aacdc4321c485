"""`eval`: a value, or what its expressions give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from evalcore.scripts.statements.statement import Statement, Template

if TYPE_CHECKING:
    from evalcore.scripts.iteration import Iteration, Scope


class Eval(Statement):
    """Gives a value; the texts in it are templates."""

    value: Template = Field(alias="eval")

    async def run(self, scope: Scope, run: Iteration) -> Any:  # noqa: ARG002 - of a call
        """Return the value."""
        return self.value.render(scope)
