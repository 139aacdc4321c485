"""A script and what a suite file lays over it: the tests of a suite, ready to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple

from evalcore.expressions.engine import ExpressionError
from evalcore.expressions.template import Tree, compile_tree
from evalcore.scripts.iteration import Scope
from evalcore.scripts.score import text_of
from evalcore.scripts.statements import (
    RESULT,
    Body,
    Compiled,
    MistakeCollector,
    ScriptPart,
    StatementCompiler,
    Toolbox,
    any_waits,
    is_text,
    read_shape,
)
from evalcore.scripts.tools import ToolReader
from evalcore.wording import Loc, describe

ITERATION: Final = "TEST_ITERATION"


class LevelShape(ScriptPart):
    """Data and tools for everything below."""

    data: Annotated[Any, Compiled("data")] = None
    tools: Annotated[Any, Compiled("tools")] = None


class ScriptTest(LevelShape, json_schema_extra={"required": ["do"]}):
    """A test: its statements, with data and tools of its own."""

    do: Annotated[Any, Compiled("body")] = None


class Level(NamedTuple):
    """What one place adds: data for the scope, and the tools from there inward."""

    data: Mapping[str, Tree]
    toolbox: Toolbox

    def enter(self, scope: Scope) -> None:
        """Put the data into the scope; each key sees what is there before it."""
        for key, tree in self.data.items():
            scope[key] = tree.render(scope)


class Test(NamedTuple):
    """A test that can be run."""

    levels: tuple[Level, ...]
    body: Body
    waits: bool

    def enter(self, outermost: Mapping[str, Any], iteration: int) -> Scope:
        """Return the scope of an iteration before its first statement."""
        scope: Scope = dict(outermost)
        for level in self.levels:
            level.enter(scope)
        scope[ITERATION] = iteration
        scope[RESULT] = None
        return scope


class LevelReader:
    """Reads what the levels of a script and its suite file add, the outermost first."""

    def __init__(self, reader: ToolReader, mistakes: MistakeCollector) -> None:
        self._reader = reader
        self._mistakes = mistakes

    def read(
        self, raw: Any, loc: Loc, parent: Toolbox | None, *, chain: bool, shape: type[LevelShape]
    ) -> Level:
        """Return a level inside of `parent`; `chain` says that no tool of it may be defined twice.

        A member that is wrong is noted and left out.
        """
        if not isinstance(raw, Mapping):
            if raw is not None:
                self._mistakes.add(loc, f"expected a mapping, got {describe(raw)}")
            raw = {}
        read_shape(shape, raw, loc, self._mistakes)
        data = self._data(raw.get("data"), (*loc, "data"))
        tools = raw.get("tools")
        if tools is None and parent is not None and parent.chain == chain:
            return Level(data, parent)
        return Level(data, self._reader.read(tools, (*loc, "tools"), parent, chain=chain))

    def test(self, raw: Any, loc: Loc, levels: tuple[Level, ...]) -> Test | None:
        """Return a test inside of these levels, None if it has no statements."""
        if not isinstance(raw, Mapping):
            self._mistakes.add(loc, f"expected {{do: …}}, got {describe(raw)}")
            return None
        level = self.read(raw, loc, levels[-1].toolbox, chain=True, shape=ScriptTest)
        if "do" not in raw:
            # A misspelt key is noted already.
            if ScriptTest.model_fields.keys() >= raw.keys():
                self._mistakes.add((*loc, "do"), "is required")
            return None
        body = StatementCompiler(level.toolbox, self._mistakes).body(raw["do"], (*loc, "do"))
        return Test((*levels, level), body, any_waits((body,)))

    def _data(self, raw: Any, loc: Loc) -> dict[str, Tree]:
        if not isinstance(raw, Mapping):
            if raw is not None:
                self._mistakes.add(loc, f"expected a mapping of values, got {describe(raw)}")
            return {}
        compiler = StatementCompiler(Toolbox(), self._mistakes)
        trees: dict[str, Tree] = {}
        for key, value in raw.items():
            if is_text(key, loc, self._mistakes):
                tree = compiler.tree(value, (*loc, key))
                trees |= {} if tree is None else {key: tree}
        return trees


class Layer(NamedTuple):
    """One place of a definition: its path, what stands there, which toolbox it belongs to."""

    path: Loc
    raw: Any
    chain: bool


def read_levels(layers: tuple[Layer, ...], reader: LevelReader) -> tuple[Level, ...]:
    """Return the levels, each inside of the one before."""
    levels: list[Level] = []
    for path, raw, chain in layers:
        parent = levels[-1].toolbox if levels else None
        levels.append(reader.read(raw, path, parent, chain=chain, shape=LevelShape))
    return tuple(levels)


TEXT: Final = "text"
ERROR: Final = "error"


@lru_cache(maxsize=256)
def compile_judged(written: str) -> Tree:
    """Return the template that `of` means; a text without `${` is an expression itself.

    Raises `ExpressionSyntaxError`.
    """
    return compile_tree(written if "${" in written else f"${{{written}}}")


def judged_values(expressions: Iterable[str], scope: Scope) -> dict[str, dict[str, str]]:
    """Return by expression `{text}`, or `{error}` where it has no value in the scope."""
    values = {}
    for written in expressions:
        try:
            values[written] = {TEXT: text_of(compile_judged(written).render(scope))}
        except ExpressionError as error:
            values[written] = {ERROR: str(error)}
    return values
