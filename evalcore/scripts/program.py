"""A script and what a suite file lays over it: the tests of a suite, ready to run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from evalcore.expressions.tree import Tree
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe
from evalcore.scripts.interpret import RESULT, run_body, waits
from evalcore.scripts.iteration import Iteration, Scope
from evalcore.scripts.mcp_tools import McpPrefix
from evalcore.scripts.mistake_collector import MistakeCollector
from evalcore.scripts.statements import Body, Compiler
from evalcore.scripts.toolbox import Toolbox
from evalcore.scripts.tools import ToolReader
from evalcore.scripts.words import check_keys

ITERATION: Final = "TEST_ITERATION"
TEST_KEYS: Final = ("data", "tools", "do")
LEVEL_KEYS: Final = ("data", "tools")
_KEPT_TESTS: Final = 1_024
_PLAIN: Final = (str, int, float, bool, type(None))


class _Entry(NamedTuple):
    """A key of `data`: its value, or the tree that makes one."""

    key: str
    tree: Tree | None
    value: Any


class Level(NamedTuple):
    """What one place adds: data for the scope, and the tools from there inward."""

    data: tuple[_Entry, ...]
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

    async def run(self, outermost: Mapping[str, Any], iteration: int, run: Iteration) -> Any:
        """Return what the test's statements give; raise whatever ends the iteration."""
        scope: Scope = dict(outermost)
        for level in self.levels:
            level.enter(scope)
        scope[ITERATION] = iteration
        scope[RESULT] = None
        return await run_body(self.body, scope, run)


class LevelReader:
    """Reads what the levels of a script and its suite file add, the outermost first."""

    def __init__(self, reader: ToolReader, mistakes: MistakeCollector) -> None:
        self._reader = reader
        self._mistakes = mistakes

    def read(
        self, raw: Any, loc: Loc, parent: Toolbox | None, *, chain: bool, keys: tuple[str, ...]
    ) -> Level:
        """Return a level inside of `parent`; `chain` says that no tool of it may be defined twice.

        `keys` are all that may stand there.
        """
        if not isinstance(raw, Mapping):
            if raw is not None:
                self._mistakes.add(loc, f"expected a mapping, got {describe(raw)}")
            raw = {}
        check_keys(raw, keys, loc, self._mistakes)
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
            level = self.read(raw, loc, levels[-1].toolbox, chain=True, keys=TEST_KEYS)
            own, toolbox = (level,), level.toolbox
        if "do" not in raw:
            if set(raw) <= set(TEST_KEYS):  # else it may be misspelt, which has been told
                self._mistakes.add((*loc, "do"), "is required")
            return None
        body = Compiler(toolbox, self._mistakes).body(raw["do"], (*loc, "do"))
        return Test((*levels, *own), body, waits(body))

    def _data(self, raw: Any, loc: Loc) -> tuple[_Entry, ...]:
        if not isinstance(raw, Mapping):
            if raw is not None:
                self._mistakes.add(loc, f"expected a mapping of values, got {describe(raw)}")
            return ()
        compiler = Compiler(Toolbox(), self._mistakes)
        found = []
        for key, value in raw.items():
            if not isinstance(key, str):
                text = f"a key must be text, got {describe(key)}; write it in quotes"
                self._mistakes.add((*loc, str(key)), text)
            elif isinstance(value, _PLAIN) and not (isinstance(value, str) and "${" in value):
                found.append(_Entry(key, None, value))
            elif (tree := compiler.tree(value, (*loc, key))) is not None:
                found.append(_Entry(key, tree, None))
        return tuple(found)


class Layer(NamedTuple):
    """One place of a definition: its path, what stands there, which toolbox it belongs to."""

    path: Loc
    raw: Any
    chain: bool


def open_servers(servers: Mapping[str, Any]) -> Toolbox:
    """Return the toolbox of those servers whose tools are all imported (`auto_import_scope`)."""
    box = Toolbox()
    for name, server in servers.items():
        if server.get("auto_import_scope") == "shared":
            box.open.append(McpPrefix(f"{name}_", name, ("*",)))
    return box


def read_levels(
    layers: tuple[Layer, ...], reader: LevelReader, around: Toolbox
) -> tuple[Level, ...]:
    """Return the levels, each inside of the one before, the first inside of `around`."""
    found: list[Level] = []
    for path, raw, chain in layers:
        parent = found[-1].toolbox if found else around
        found.append(reader.read(raw, path, parent, chain=chain, keys=LEVEL_KEYS))
    return tuple(found)


class Program:
    """The tests of a suite, made when they are first asked for; safe for one thread."""

    def __init__(self, levels: tuple[Level, ...], reader: LevelReader) -> None:
        self._levels = levels
        self._reader = reader
        self._tests: OrderedDict[str, tuple[Any, Test]] = OrderedDict()

    def test(self, name: str, raw: Mapping[str, Any]) -> Test:
        """Return the test that a case's input describes."""
        known = self._tests.get(name)
        if known is not None and known[0] is raw:
            return known[1]
        made = self._reader.test(raw, (name,), self._levels)
        if made is None:  # the reader has raised
            raise ValueError(name)
        self._tests[name] = (raw, made)
        if len(self._tests) > _KEPT_TESTS:
            self._tests.popitem(last=False)
        return made
