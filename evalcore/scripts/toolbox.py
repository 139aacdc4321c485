"""Tools by name, each list of them inside another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from evalcore.mistakes.locations import Loc
from evalcore.scripts.iteration import Iteration, Scope, Tool


class ToolEntry(NamedTuple):
    """A tool and where it is defined: a path in its file, and what finds its line there."""

    tool: Tool
    loc: Loc
    line: Callable[[Loc], str]


class Toolbox:
    """The tools of one list; what it lacks is looked for in the one around it.

    `prefixes` are beginnings of names of which a server says which there are.
    """

    def __init__(self, parent: Toolbox | None = None, *, chain: bool = False) -> None:
        """Take the toolbox around it; `chain` says that no name of it may be defined again."""
        self.tools: dict[str, ToolEntry] = {}
        self.open: list[OpenPrefix] = []
        self._parent = parent
        self.chain = chain

    def add(self, entry: ToolEntry) -> ToolEntry | None:
        """Add a tool; return the one that has the same name where that is not allowed."""
        box: Toolbox | None = self
        while box is not None:
            if entry.tool.name in box.tools:
                return box.tools[entry.tool.name]
            box = box._parent if box.chain else None
        self.tools[entry.tool.name] = entry
        return None

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, the innermost first."""
        if name in self.tools:
            return self.tools[name].tool
        for opened in self.open:
            if name.startswith(opened.prefix) and opened.allows(name):
                return opened.tool(name)
        return None if self._parent is None else self._parent.find(name)

    def outside(self, name: str) -> Tool | None:
        """Return the tool of that name around this toolbox."""
        return None if self._parent is None else self._parent.find(name)

    def names(self) -> list[str]:
        """Return every name that can be called."""
        return sorted(set(self._names()))

    def _names(self) -> Iterator[str]:
        yield from self.tools
        yield from (f"{opened.prefix}…" for opened in self.open)
        if self._parent is not None:
            yield from self._parent._names()

    def visible(self) -> dict[str, Tool]:
        """Return every named tool that can be called here."""
        outer = {} if self._parent is None else self._parent.visible()
        return {**outer, **{name: entry.tool for name, entry in self.tools.items()}}


class NamedTool:
    """A tool from further out, imported under a name."""

    def __init__(self, name: str, tool: Tool) -> None:
        self.name = name
        self._tool = tool

    @property
    def tool(self) -> Tool:
        """The tool under its own name."""
        return self._tool

    @property
    def description(self) -> str:
        """What the tool does."""
        return str(getattr(self._tool, "description", ""))

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether the tool waits."""
        return self._tool.waits(asked_tools)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the tool's parameters."""
        return self._tool.parameters()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return self._tool.schema()

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Call the tool."""
        return await self._tool.call(params, scope, run)


class OpenPrefix:
    """Names that begin with `prefix`: tools of a server that lists them itself."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def allows(self, name: str) -> bool:
        """Whether a name may be one of the server's tools."""
        return len(name) > len(self.prefix)

    def tool(self, name: str) -> Tool:
        """Return the tool of that name, whether there is one or not."""
        raise NotImplementedError
