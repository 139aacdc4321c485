"""Statements as they stand in a file → statements that can be run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.expressions.match_patterns import compile_match_pattern
from evalcore.expressions.tree import Tree, compile_tree
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe, known_names, suggest
from evalcore.patterns.bounded import PythonPattern
from evalcore.scripts.mistake_collector import MistakeCollector
from evalcore.scripts.read_shape import read_shape
from evalcore.scripts.statements.evaluate import Eval
from evalcore.scripts.statements.match import Matcher
from evalcore.scripts.statements.registry import STATEMENTS, statement_class
from evalcore.scripts.statements.statement import Body, ScriptPart, Statement, compiled_fields
from evalcore.scripts.toolbox import Toolbox

P = TypeVar("P", bound=ScriptPart)
_DEEPEST: Final = 100


@lru_cache(maxsize=16_384)
def _evaluated(text: str) -> Body:
    """Return the body that is one `eval` of a text; the same text has the same one."""
    statement = Eval.model_construct(value=compile_tree(text), store_as=None)
    return Body((statement,), listed=False)


class StatementCompiler:
    """Makes statements; what is wrong with them is noted, and they are left out.

    A method that is the form of a `Compiled` field returns None where it notes a mistake.
    """

    def __init__(self, toolbox: Toolbox, mistakes: MistakeCollector) -> None:
        """Take the tools that can be called from these statements."""
        self._toolbox = toolbox
        self._mistakes = mistakes

    def body(self, raw: Any, loc: Loc) -> Body:
        """Return a statement or a list of them."""
        if type(raw) is dict and len(raw) == 1 and type(raw.get("eval")) is str:
            try:
                return _evaluated(raw["eval"])  # by far the most frequent
            except ExpressionSyntaxError:
                pass  # noted below
        if len(loc) > _DEEPEST:
            self._mistakes.add(loc[:_DEEPEST], "statements are nested too deep")
            return Body((), listed=True)
        members = raw if isinstance(raw, list) else [raw]
        listed = isinstance(raw, list)
        statements = [
            self._statement(member, (*loc, index) if listed else loc)
            for index, member in enumerate(members)
        ]
        return Body(tuple(each for each in statements if each is not None), listed=listed)

    def tree(self, raw: Any, loc: Loc) -> Tree | None:
        """Return a value whose texts are templates."""
        try:
            return compile_tree(raw)
        except ExpressionSyntaxError as error:
            self._mistakes.add((*loc, *error.path), str(error))
            return None

    def params(self, raw: Any, loc: Loc) -> Tree | None:
        """Return the parameters of a call: a mapping, or a text that gives one."""
        if not isinstance(raw, Mapping | str) or (isinstance(raw, str) and "${" not in raw):
            self._mistakes.add(loc, f"expected a mapping of parameters, got {describe(raw)}")
            return None
        for key in raw if isinstance(raw, Mapping) else ():
            if not isinstance(key, str):
                message = f"a key must be text, got {describe(key)}; write it in quotes"
                self._mistakes.add((*loc, str(key)), message)
                return None
        return self.tree(raw, loc)

    def pattern(self, raw: Any, loc: Loc) -> PythonPattern | None:
        """Return a regular expression."""
        if not isinstance(raw, str):
            self._mistakes.add(loc, f"expected a regular expression, got {describe(raw)}")
            return None
        try:
            return compile_match_pattern(raw)
        except ExpressionSyntaxError as error:
            self._mistakes.add(loc, str(error))
            return None

    def matchers(self, raw: Any, loc: Loc) -> tuple[Matcher, ...] | None:
        """Return the matchers of a list."""
        if not isinstance(raw, list):
            expected = "a list of {case or pattern, then}"
            self._mistakes.add(loc, f"expected {expected}, got {describe(raw)}")
            return None
        matchers = [self._part(Matcher, member, (*loc, i)) for i, member in enumerate(raw)]
        return tuple(matcher for matcher in matchers if matcher is not None)

    def _statement(self, raw: Any, loc: Loc) -> Statement | None:
        kinds = [kind for kind in STATEMENTS if kind in raw] if isinstance(raw, Mapping) else []
        if len(kinds) != 1:
            self._mistakes.add(loc, _no_statement(raw, kinds))
            return None
        statement = self._part(statement_class(kinds[0]), raw, loc)
        if statement is None or not statement.bind(self._toolbox, raw, loc, self._mistakes):
            return None
        return statement

    def _part(self, shape: type[P], raw: Any, loc: Loc) -> P | None:
        """Return the part of this class, its `Compiled` fields made by the methods of that name."""
        compiled: dict[str, Any] = {}
        sound = True
        for key, mark in compiled_fields(shape) if isinstance(raw, Mapping) else ():
            if key not in raw or (mark.skips_null and raw[key] is None):
                continue
            compiled[key] = getattr(self, mark.form)(raw[key], (*loc, key))
            if compiled[key] is None:
                sound = False
                compiled[key] = _STAND_INS[mark.form]
        part = read_shape(shape, raw, loc, self._mistakes, compiled)
        return part if sound else None


# Takes the place of what could not be compiled, so that the other keys are checked.
_STAND_INS: Final[Mapping[str, Any]] = {
    "tree": compile_tree(None),
    "params": compile_tree(None),
    "pattern": compile_match_pattern(""),
    "matchers": (),
}


def _no_statement(raw: Any, kinds: list[str]) -> str:
    """Return the message for what is no statement, or has the keys of several."""
    names = ", ".join(STATEMENTS)
    if not isinstance(raw, Mapping):
        return f"expected a statement ({names}), got {describe(raw)}"
    if kinds:
        both = " and ".join(f"'{kind}'" for kind in kinds)
        return f"a statement has one of {names}, this one has {both}"
    first = next(iter(raw), None)
    hint = known_names(STATEMENTS) if first is None else suggest(first, STATEMENTS).strip()
    return f"is no statement: it has none of {names}. {hint}"
