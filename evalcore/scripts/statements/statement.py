"""What every statement has, bodies of statements, and running them one after another.

Everything here is a coroutine; one whose tools wait for nothing never suspends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import GetJsonSchemaHandler
from pydantic_core import core_schema

from evalcore.declared.base import Declared
from evalcore.declared.types import Text
from evalcore.expressions.tree import Tree
from evalcore.mistakes.locations import Loc

if TYPE_CHECKING:
    from evalcore.scripts.iteration import Iteration, Scope
    from evalcore.scripts.mistake_collector import MistakeCollector
    from evalcore.scripts.toolbox import Toolbox

RESULT: Final = "_"


class Compiled(NamedTuple):
    """Marks a field that the compiler makes: `form` names its method.

    Where `skips_null`, null counts as a key that is left out.
    """

    form: str
    skips_null: bool = False

    def __get_pydantic_json_schema__(
        self, _: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return a schema that fits anything; `form` is replaced by the schema of the format."""
        del handler
        return {"form": self.form, "skips_null": self.skips_null}


Template = Annotated[Tree, Compiled("tree")]


class ScriptPart(Declared, alias_generator=None, arbitrary_types_allowed=True):
    """A mapping in a script or a suite of statements; its keys are written in snake_case only."""


class Statement(ScriptPart):
    """One step of a test or a tool; `store_as` names the variable that gets its result."""

    store_as: Text | None = None

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - of a type
        """Whether the statement may wait; `asked_tools` are the tools that are asked already."""
        return False

    def bind(
        self,
        toolbox: Toolbox,  # noqa: ARG002
        raw: Mapping[str, Any],  # noqa: ARG002
        loc: Loc,  # noqa: ARG002
        mistakes: MistakeCollector,  # noqa: ARG002
    ) -> bool:
        """Find the tools that the statement names; note and return whether one is missing."""
        return True

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the result."""
        raise NotImplementedError


class Body:
    """One statement, or a list of them."""

    __slots__ = ("listed", "statements")

    def __init__(self, statements: tuple[Statement, ...], *, listed: bool) -> None:
        self.statements = statements
        self.listed = listed


RequiredBody = Annotated[Body, Compiled("body")]
OptionalBody = Annotated[Body | None, Compiled("body", skips_null=True)]


@cache
def compiled_fields(shape: type[ScriptPart]) -> tuple[tuple[str, Compiled], ...]:
    """Return the keys of a class whose values the compiler makes."""
    return tuple(
        (info.alias or name, mark)
        for name, info in shape.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, Compiled)
    )


def any_waits(bodies: Iterable[Body | None], asked_tools: set[int] | None = None) -> bool:
    """Whether statements may have to be waited for: a model, a server, Python of the suite."""
    tools = set() if asked_tools is None else asked_tools
    return any(
        statement.waits(tools)
        for body in bodies
        if body is not None
        for statement in body.statements
    )


async def run_body(body: Body, scope: Scope, run: Iteration) -> Any:
    """Return the result of a statement, or of the last of a list (None of an empty one).

    In a list `_` is the result of the statement before; the first one sees that of the enclosing
    list.
    """
    if not body.listed:
        return await _run(body.statements[0], scope, run)
    before = scope[RESULT]
    result = before if body.statements else None
    try:
        for statement in body.statements:
            scope[RESULT] = result
            result = await _run(statement, scope, run)
    finally:
        scope[RESULT] = before
    return result


async def _run(statement: Statement, scope: Scope, run: Iteration) -> Any:
    run.count()
    result = await statement.run(scope, run)
    if statement.store_as is not None:
        scope[statement.store_as] = result
    return result
