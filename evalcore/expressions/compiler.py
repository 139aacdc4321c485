"""The compiler of one expression: names, frames, costs, and what is refused.

Nothing of the text becomes Python code: its syntax tree is walked once, each node that is allowed
becomes a closure of this package, and every other node is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.expressions.frames import BUDGET, LOCALS, UNDERSCORED, Frame, Run, local, variable
from evalcore.expressions.functions import FUNCTIONS
from evalcore.expressions.values import take

_DEEPEST: Final = 150
_FUNCTION_NAMES: Final = frozenset(FUNCTIONS)
_REFUSED: Final = {
    ast.Lambda: "a lambda may only be an argument: key=…, map(…), filter(…)",
    ast.NamedExpr: "':=' is not available",
    ast.Await: "'await' is not available",
    ast.Yield: "'yield' is not available",
    ast.YieldFrom: "'yield' is not available",
    ast.Slice: "a slice stands alone between its brackets",
    ast.Starred: "'*' may stand in calls, lists, tuples and sets",
}

NodeCompilers = Mapping[type, Callable[["ExpressionCompiler", Any], Run]]
"""The function of each kind of node that is allowed."""


class ExpressionCompiler:
    """Compiles the nodes of one expression.

    `cost` is how many steps the part being compiled takes, each time that it runs; comprehensions
    and lambdas charge for their bodies themselves.
    """

    def __init__(self, text: str, nodes: NodeCompilers) -> None:
        self.text = text
        self._nodes = nodes
        self.names: set[str] = set()
        self.cost = 0
        self._locals: list[dict[str, int]] = []
        self._depth = 0

    def compile(self, node: ast.expr) -> Run:
        """Return the node's function; raise `ExpressionSyntaxError` where it is not allowed."""
        compile_node = self._nodes.get(type(node))
        if compile_node is None:
            kind = type(node)
            self.refuse(node, _REFUSED.get(kind, f"{kind.__name__} is not available"))
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse(node, "the expression is too deeply nested")
        run = compile_node(self, node)
        self._depth -= 1
        return run

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        """Raise the error for what stands at a node."""
        line = getattr(node, "lineno", 1)
        lines = self.text.split("\n")
        before = lines[line - 1].encode("utf-8", "surrogatepass") if line <= len(lines) else b""
        column = getattr(node, "col_offset", 0) - (1 if line == 1 else 0)
        column = len(before[: max(0, column)].decode("utf-8", "replace"))
        raise ExpressionSyntaxError(message, line, column + 1)

    def check_name(self, node: ast.AST, name: str, allowed: frozenset[str] = UNDERSCORED) -> str:
        """Return a name that may be used; refuse one that begins with an underscore."""
        if name.startswith("_") and name not in allowed:
            self.refuse(node, f"names beginning with '_' are not available: {name}")
        return name

    def is_local(self, name: str) -> bool:
        """Return whether a comprehension or lambda around binds the name."""
        return any(name in names for names in self._locals)

    def lookup(self, name: str) -> Run:
        """Return the function that reads a variable."""
        for distance, names in enumerate(reversed(self._locals)):
            if name in names:
                return local(distance, LOCALS + names[name], name)
        self.names.add(name)
        return variable(name, _FUNCTION_NAMES)

    @contextmanager
    def frame(self, names: dict[str, int]) -> Iterator[None]:
        """Compile what runs in a frame of its own, whose cost is counted apart."""
        cost, self.cost = self.cost, 0
        self._locals.append(names)
        yield
        self._locals.pop()
        self.cost = cost

    def take_cost(self) -> int:
        """Return the steps counted so far and begin anew."""
        cost, self.cost = self.cost, 0
        return cost


def compile_elements(
    compiler: ExpressionCompiler, nodes: list[ast.expr]
) -> Callable[[Frame], list[Any]]:
    """Return the function that gives the values of a display or of a call's arguments."""
    if not any(isinstance(node, ast.Starred) for node in nodes):
        runs = [compiler.compile(node) for node in nodes]
        compiler.cost += len(runs)
        return lambda frame: [run(frame) for run in runs]
    parts: list[tuple[bool, Run]] = []
    for node in nodes:
        spread = isinstance(node, ast.Starred)
        parts.append(
            (spread, compiler.compile(node.value if isinstance(node, ast.Starred) else node))
        )
    compiler.cost += len(parts)

    def run(frame: Frame) -> list[Any]:
        values: list[Any] = []
        for spread, part in parts:
            if spread:
                values.extend(take(part(frame), frame[BUDGET]))
            else:
                values.append(part(frame))
        return values

    return run
