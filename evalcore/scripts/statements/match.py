"""`match`: the first of several bodies whose case or pattern fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import Field, model_validator

from evalcore.expressions.match_patterns import match_groups
from evalcore.expressions.tree import Tree
from evalcore.patterns.bounded import PythonPattern
from evalcore.scripts.score import text_of
from evalcore.scripts.statements.statement import (
    Body,
    Compiled,
    OptionalBody,
    RequiredBody,
    ScriptPart,
    Statement,
    Template,
    any_waits,
    run_body,
)

if TYPE_CHECKING:
    from evalcore.scripts.iteration import Iteration, Scope

_GROUPS: Final = "_match_groups"


class Matcher(ScriptPart):
    """Runs its body for a value that is equal to `case`, or in which `pattern` is found."""

    case: Annotated[Tree | None, Compiled("tree")] = None
    pattern: Annotated[PythonPattern | None, Compiled("pattern")] = None
    then: RequiredBody

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.case is None) == (self.pattern is None):
            which = "neither" if self.case is None else "both"
            raise ValueError(f"a matcher has 'case' or 'pattern', this one has {which}")
        return self


class Match(Statement):
    """Runs the first matcher that fits, else the default."""

    value: Template = Field(alias="match")
    trim: bool = False
    matchers: Annotated[tuple[Matcher, ...], Compiled("matchers")]
    default: OptionalBody = None

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether one of the bodies waits."""
        return any_waits([*(matcher.then for matcher in self.matchers), self.default], asked_tools)

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the result of the body that fits; null if there is none."""
        value = self.value.render(scope)
        if self.trim and isinstance(value, str):
            value = value.strip()
        for matcher in self.matchers:
            if matcher.case is not None:
                if _is_case(value, matcher.case.render(scope)):
                    return await run_body(matcher.then, scope, run)
            elif matcher.pattern is not None and value is not None:
                groups = match_groups(matcher.pattern, text_of(value))
                if groups is not None:
                    return await _with_groups(matcher.then, list(groups[1:]), scope, run)
        return None if self.default is None else await run_body(self.default, scope, run)


async def _with_groups(then: Body, groups: list[Any], scope: Scope, run: Iteration) -> Any:
    outer = {name: scope[name] for name in (_GROUPS,) if name in scope}
    scope[_GROUPS] = groups
    try:
        return await run_body(then, scope, run)
    finally:
        del scope[_GROUPS]
        scope.update(outer)


def _is_case(value: Any, case: Any) -> bool:
    """Whether a value is the case; a text also equals the value that is written like it."""
    if isinstance(value, str) != isinstance(case, str) and value is not None and case is not None:
        return text_of(value) == text_of(case)
    return bool(value == case)
