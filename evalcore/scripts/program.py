"""A script and what a suite file lays over it: the tests of a suite, ready to run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple

from evalcore.expressions.engine import ExpressionError
from evalcore.expressions.template import Tree, compile_tree
from evalcore.scripts.builtin_tools import score_tools
from evalcore.scripts.iteration import Iteration, Scope
from evalcore.scripts.mcp import McpPrefix
from evalcore.scripts.score import text_of
from evalcore.scripts.statements import (
    RESULT,
    Body,
    Compiled,
    MistakeCollector,
    ScriptPart,
    StatementCompiler,
    Toolbox,
    ToolEntry,
    any_waits,
    read_shape,
    run_body,
)
from evalcore.scripts.tools import ToolReader
from evalcore.wording import Loc, describe

ITERATION: Final = "TEST_ITERATION"
_KEPT_TESTS: Final = 1_024
_PLAIN: Final = (str, int, float, bool, type(None))


class LevelShape(ScriptPart):
    """Data and tools for everything below."""

    data: Annotated[Any, Compiled("data")] = None
    tools: Annotated[Any, Compiled("tools")] = None


class ScriptTest(LevelShape, json_schema_extra={"required": ["do"]}):
    """A test: its statements, with data and tools of its own."""

    do: Annotated[Any, Compiled("body")] = None


class _DataEntry(NamedTuple):
    """A key of `data`: its value, or the tree that makes one."""

    key: str
    tree: Tree | None
    value: Any


class Level(NamedTuple):
    """What one place adds: data for the scope, and the tools from there inward."""

    data: tuple[_DataEntry, ...]
    toolbox: Toolbox

    def enter(self, scope: Scope) -> None:
        """Put the data into the scope; each key sees what is there before it."""
        for key, tree, value in self.data:
            scope[key] = value if tree is None else tree.render(scope)


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

    async def run(self, outermost: Mapping[str, Any], iteration: int, run: Iteration) -> Any:
        """Return what the test's statements give; raise what ends the iteration."""
        return await self.run_in(self.enter(outermost, iteration), run)

    async def run_in(self, scope: Scope, run: Iteration) -> Any:
        """Return what `run` returns; the scope has the stored variables afterwards."""
        return await run_body(self.body, scope, run)


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
        if len(raw) == 1 and "do" in raw:
            own: tuple[Level, ...] = ()
            toolbox = levels[-1].toolbox
        else:
            level = self.read(raw, loc, levels[-1].toolbox, chain=True, shape=ScriptTest)
            own, toolbox = (level,), level.toolbox
        if "do" not in raw:
            # A misspelt key is noted already.
            if ScriptTest.model_fields.keys() >= raw.keys():
                self._mistakes.add((*loc, "do"), "is required")
            return None
        body = StatementCompiler(toolbox, self._mistakes).body(raw["do"], (*loc, "do"))
        return Test((*levels, *own), body, any_waits((body,)))

    def _data(self, raw: Any, loc: Loc) -> tuple[_DataEntry, ...]:
        if not isinstance(raw, Mapping):
            if raw is not None:
                self._mistakes.add(loc, f"expected a mapping of values, got {describe(raw)}")
            return ()
        compiler = StatementCompiler(Toolbox(), self._mistakes)
        entries = []
        for key, value in raw.items():
            if not isinstance(key, str):
                text = f"a key must be text, got {describe(key)}; write it in quotes"
                self._mistakes.add((*loc, str(key)), text)
            elif isinstance(value, _PLAIN) and not (isinstance(value, str) and "${" in value):
                entries.append(_DataEntry(key, None, value))
            elif (tree := compiler.tree(value, (*loc, key))) is not None:
                entries.append(_DataEntry(key, tree, None))
        return tuple(entries)


class Layer(NamedTuple):
    """One place of a definition: its path, what stands there, which toolbox it belongs to."""

    path: Loc
    raw: Any
    chain: bool


def open_servers(servers: Mapping[str, Any]) -> Toolbox:
    """Return the outermost toolbox: tools that need no import.

    They are those that compute scores, and those of servers whose `auto_import_scope` is `shared`.
    """
    box = Toolbox()
    for tool in score_tools():
        box.add(ToolEntry(tool, (), lambda _: "the tools that need no import"))
    for name, server in servers.items():
        if server.get("auto_import_scope") == "shared":
            box.open.append(McpPrefix(f"{name}_", name, ("*",)))
    return box


def read_levels(
    layers: tuple[Layer, ...], reader: LevelReader, around: Toolbox
) -> tuple[Level, ...]:
    """Return the levels, each inside of the one before, the first inside of `around`."""
    levels: list[Level] = []
    for path, raw, chain in layers:
        parent = levels[-1].toolbox if levels else around
        levels.append(reader.read(raw, path, parent, chain=chain, shape=LevelShape))
    return tuple(levels)


class SuiteProgram:
    """The tests of a suite, made when they are first asked for; safe for one thread."""

    def __init__(self, levels: tuple[Level, ...], reader: LevelReader) -> None:
        self._levels = levels
        self._reader = reader
        self._tests: OrderedDict[str, tuple[Any, Test]] = OrderedDict()

    def test(self, name: str, raw: Mapping[str, Any]) -> Test:
        """Return the test that a case's input describes."""
        cached = self._tests.get(name)
        if cached is not None and cached[0] is raw:
            return cached[1]
        test = self._reader.test(raw, (name,), self._levels)
        if test is None:  # the reader has raised
            raise ValueError(name)
        self._tests[name] = (raw, test)
        if len(self._tests) > _KEPT_TESTS:
            self._tests.popitem(last=False)
        return test


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
