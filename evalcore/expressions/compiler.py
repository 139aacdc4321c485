"""From an expression's text to the function that gives its value.

Nothing of the text becomes Python code: its syntax tree is walked once, each node that is allowed
becomes a closure of this package, and every other node is refused.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn

from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.expressions.frames import BUDGET, LOCALS, UNDERSCORED, Frame, Run, local, variable
from evalcore.expressions.functions import FUNCTIONS
from evalcore.expressions.lookup import attribute, item
from evalcore.expressions.operators import BINARY, COMPARING, UNARY
from evalcore.expressions.texts import formatted
from evalcore.expressions.values import LARGEST, SCALARS, Failure, check_key, describe, plain, take

_LONGEST: Final = 50_000
_DEEPEST: Final = 150
_FUNCTION_NAMES: Final = frozenset(FUNCTIONS)
_CONVERSIONS: Final = {-1: None, ord("s"): "s", ord("r"): "r", ord("a"): "a"}
_REFUSED: Final = {
    ast.Lambda: "a lambda may only be an argument: key=…, map(…), filter(…)",
    ast.NamedExpr: "':=' is not available",
    ast.Await: "'await' is not available",
    ast.Yield: "'yield' is not available",
    ast.YieldFrom: "'yield' is not available",
    ast.Slice: "a slice stands alone between its brackets",
    ast.Starred: "'*' may stand in calls, lists, tuples and sets",
}


class Code(NamedTuple):
    """A compiled expression: its function, the steps it takes, the names it looks up."""

    run: Run
    cost: int
    names: frozenset[str]


def compile_expression(text: str) -> Code:
    """Compile one expression, which may be of several lines, as if in parentheses.

    Raises `ExpressionSyntaxError` with the place in `text`.
    """
    compiler = Compiler(text)
    run = compiler.compile(_parse(text))
    return Code(run, compiler.cost, frozenset(compiler.names))


def _parse(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise ExpressionSyntaxError(f"an expression has at most {_LONGEST} characters")
    try:
        # The brackets within the text are balanced: `scan.split` saw to that.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they name a file that nobody has
            tree = ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError as error:
        line, column = _place(error, text)
        message = (error.msg or "invalid syntax").removesuffix(". Perhaps you forgot a comma?")
        raise ExpressionSyntaxError(message, line, column) from None
    except ValueError as error:
        # Python's own limit for the digits of a literal speaks of its settings.
        large = "integer string conversion" in str(error)
        raise ExpressionSyntaxError("the integer is too large" if large else str(error)) from None
    except (MemoryError, RecursionError, OverflowError):
        raise ExpressionSyntaxError("the expression is too deeply nested") from None
    if isinstance(tree, ast.Tuple) and not tree.elts and tree.col_offset == 0:
        raise ExpressionSyntaxError("the expression is empty")
    return tree


def _place(error: SyntaxError, text: str) -> tuple[int, int]:
    """Return line and column within the text; its end, where the mistake is what is missing."""
    line, lines = error.lineno or 1, text.split("\n")
    if line > len(lines):
        return len(lines), len(lines[-1]) + 1
    return line, max(1, (error.offset or 1) - (line == 1))


class Compiler:
    """Compiles the nodes of one expression.

    `cost` is how many steps the part being compiled takes, each time that it runs; comprehensions
    and lambdas charge for their bodies themselves.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        self.cost = 0
        self._locals: list[dict[str, int]] = []
        self._depth = 0

    def compile(self, node: ast.expr) -> Run:
        """Return the node's function; raise `ExpressionSyntaxError` where it is not allowed."""
        compile_node = _NODES.get(type(node))
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


def _constant(compiler: Compiler, node: ast.Constant) -> Run:
    value = node.value
    if type(value) not in SCALARS:
        compiler.refuse(node, f"{describe(value)} is not available")
    if type(value) is int and value >= LARGEST:
        compiler.refuse(node, "the integer is too large")
    return lambda _: value


def _name(compiler: Compiler, node: ast.Name) -> Run:
    return compiler.lookup(compiler.check_name(node, node.id))


def _attribute(compiler: Compiler, node: ast.Attribute) -> Run:
    name = compiler.check_name(node, node.attr, frozenset())
    target = compiler.compile(node.value)
    compiler.cost += 1

    def run(frame: Frame) -> Any:
        value = target(frame)
        if type(value) is dict and name in value:
            return value[name]
        return attribute(value, name)

    return run


def _subscript(compiler: Compiler, node: ast.Subscript) -> Run:
    target = compiler.compile(node.value)
    index = (
        _slice(compiler, node.slice)
        if isinstance(node.slice, ast.Slice)
        else (compiler.compile(node.slice))
    )
    compiler.cost += 1
    return lambda frame: item(frame[BUDGET], target(frame), index(frame))


def _slice(compiler: Compiler, node: ast.Slice) -> Run:
    bounds = [
        compiler.compile(bound) if bound is not None else (lambda _: None)
        for bound in (node.lower, node.upper, node.step)
    ]
    return lambda frame: slice(*(plain(bound(frame)) for bound in bounds))


def _binary(compiler: Compiler, node: ast.BinOp) -> Run:
    operator = BINARY.get(type(node.op).__name__)
    if operator is None:
        compiler.refuse(node, "this operator is not available")
    left, right = compiler.compile(node.left), compiler.compile(node.right)
    compiler.cost += 1
    return lambda frame: operator(frame[BUDGET], left(frame), right(frame))


def _unary(compiler: Compiler, node: ast.UnaryOp) -> Run:
    operator = UNARY[type(node.op).__name__]
    operand = compiler.compile(node.operand)
    compiler.cost += 1
    return lambda frame: operator(operand(frame))


def _boolean(compiler: Compiler, node: ast.BoolOp) -> Run:
    runs = [compiler.compile(value) for value in node.values]
    compiler.cost += len(runs)
    *first, last = runs

    def conjunction(frame: Frame) -> Any:
        for run in first:
            value = run(frame)
            if not value:
                return value
        return last(frame)

    def disjunction(frame: Frame) -> Any:
        for run in first:
            value = run(frame)
            if value:
                return value
        return last(frame)

    return conjunction if isinstance(node.op, ast.And) else disjunction


def _compare(compiler: Compiler, node: ast.Compare) -> Run:
    compiler.cost += len(node.ops)
    first = compiler.compile(node.left)
    rest = [
        (COMPARING[type(sign).__name__], compiler.compile(value))
        for sign, value in zip(node.ops, node.comparators, strict=True)
    ]
    if len(rest) == 1:
        compare, second = rest[0]
        return lambda frame: compare(frame[BUDGET], first(frame), second(frame))

    def chain(frame: Frame) -> Any:
        left = first(frame)
        result: Any = True
        for compare, run in rest:
            right = run(frame)
            result = compare(frame[BUDGET], left, right)
            if not result:
                break
            left = right
        return result

    return chain


def _conditional(compiler: Compiler, node: ast.IfExp) -> Run:
    test = compiler.compile(node.test)
    then, otherwise = compiler.compile(node.body), compiler.compile(node.orelse)
    compiler.cost += 1
    return lambda frame: then(frame) if test(frame) else otherwise(frame)


def compile_elements(compiler: Compiler, nodes: list[ast.expr]) -> Callable[[Frame], list[Any]]:
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


def _list(compiler: Compiler, node: ast.List) -> Run:
    return compile_elements(compiler, node.elts)


def _tuple(compiler: Compiler, node: ast.Tuple) -> Run:
    elements = compile_elements(compiler, node.elts)
    return lambda frame: tuple(elements(frame))


def _set(compiler: Compiler, node: ast.Set) -> Run:
    elements = compile_elements(compiler, node.elts)
    make_set = FUNCTIONS["set"]
    return lambda frame: make_set(frame[BUDGET], elements(frame))


def _dict(compiler: Compiler, node: ast.Dict) -> Run:
    pairs = [
        (None if key is None else compiler.compile(key), compiler.compile(value))
        for key, value in zip(node.keys, node.values, strict=True)
    ]
    compiler.cost += len(pairs)
    make_dict = FUNCTIONS["dict"]

    def run(frame: Frame) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in pairs:
            if key is None:
                made.update(_mapping(value(frame), make_dict, frame))
                continue
            its_key = key(frame)
            check_key(its_key, frame[BUDGET])
            made[its_key] = value(frame)
        return made

    return run


def _mapping(value: Any, make_dict: Callable[..., Any], frame: Frame) -> Any:
    from collections.abc import Mapping

    if not isinstance(value, Mapping):
        raise Failure("TypeError", f"'**' takes a mapping, not {describe(value)}")
    return make_dict(frame[BUDGET], value)


def _joined(compiler: Compiler, node: ast.JoinedStr) -> Run:
    parts = [compiler.compile(part) for part in node.values]
    compiler.cost += len(parts)

    def run(frame: Frame) -> str:
        texts = [part(frame) for part in parts]
        frame[BUDGET].room(sum(map(len, texts)))
        return "".join(texts)

    return run


def _field(compiler: Compiler, node: ast.FormattedValue) -> Run:
    value = compiler.compile(node.value)
    conversion = _CONVERSIONS[node.conversion]
    if node.format_spec is None:
        return lambda frame: formatted(value(frame), conversion, "", frame[BUDGET])
    spec = compiler.compile(node.format_spec)
    return lambda frame: formatted(value(frame), conversion, spec(frame), frame[BUDGET])


def _call(compiler: Compiler, node: ast.Call) -> Run:
    from evalcore.expressions.calls import compile_call

    return compile_call(compiler, node)


def _comprehension(
    compiler: Compiler, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
) -> Run:
    from evalcore.expressions.loops import compile_comprehension

    return compile_comprehension(compiler, node)


_NODES: Final[dict[type, Callable[[Compiler, Any], Run]]] = {
    ast.Attribute: _attribute,
    ast.BinOp: _binary,
    ast.BoolOp: _boolean,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.DictComp: _comprehension,
    ast.FormattedValue: _field,
    ast.GeneratorExp: _comprehension,
    ast.IfExp: _conditional,
    ast.JoinedStr: _joined,
    ast.List: _list,
    ast.ListComp: _comprehension,
    ast.Name: _name,
    ast.Set: _set,
    ast.SetComp: _comprehension,
    ast.Subscript: _subscript,
    ast.Tuple: _tuple,
    ast.UnaryOp: _unary,
}
