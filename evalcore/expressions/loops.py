"""Comprehensions, generator expressions and lambdas: what runs more than once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from evalcore.expressions.compiler import ExpressionCompiler
from evalcore.expressions.frames import BUDGET, LOCALS, SCOPE, UNSET, Frame, Run
from evalcore.expressions.values import EvaluationFailure, Lazy, check_key, describe, iterate, take

Store = Callable[[Frame, Any], None]
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class _Level(NamedTuple):
    """One `for` of a comprehension; `values` is None for the first, which runs outside.

    `cost` is for each round, `cost_if_passed` for each that the conditions let through.
    """

    values: Run | None
    store: Store
    conditions: tuple[Run, ...]
    cost: int
    cost_if_passed: int


def compile_comprehension(compiler: ExpressionCompiler, node: Comprehension) -> Run:
    """Return the function of a comprehension; each round takes a step and its body's."""
    for generator in node.generators:
        if generator.is_async:
            compiler.refuse(node, "'async' is not available")
    first = compiler.compile(node.generators[0].iter)
    compiler.cost += 1
    names: dict[str, int] = {}
    for generator in node.generators:
        _bind(compiler, generator.target, names)
    with compiler.frame(names):
        levels = _levels(compiler, node.generators, names)
        key = compiler.compile(node.key) if isinstance(node, ast.DictComp) else None
        element = compiler.compile(node.value if isinstance(node, ast.DictComp) else node.elt)
        levels[-1] = levels[-1]._replace(cost_if_passed=compiler.take_cost())
    empty = [UNSET] * len(names)

    def enter(frame: Frame) -> tuple[Frame, Iterator[Any], Any]:
        source = first(frame)
        return [frame, frame[SCOPE], frame[BUDGET], *empty], iterate(source, frame[BUDGET]), source

    return _result(node, levels, enter, key, element)


def _result(
    node: Comprehension,
    levels: list[_Level],
    enter: Callable[[Frame], tuple[Frame, Iterator[Any], Any]],
    key: Run | None,
    element: Run,
) -> Run:
    def make_list(frame: Frame) -> list[Any]:
        inner, values, _ = enter(frame)
        return [element(inner) for _ in _rounds(levels, 0, values, inner)]

    def make_set(frame: Frame) -> set[Any]:
        inner, values, _ = enter(frame)
        result: set[Any] = set()
        for _ in _rounds(levels, 0, values, inner):
            value = element(inner)
            check_key(value, inner[BUDGET])
            result.add(value)
        return result

    def make_dict(frame: Frame) -> dict[Any, Any]:
        inner, values, _ = enter(frame)
        result: dict[Any, Any] = {}
        for _ in _rounds(levels, 0, values, inner):
            its_key = key(inner) if key is not None else None
            check_key(its_key, inner[BUDGET])
            result[its_key] = element(inner)
        return result

    def make_lazy(frame: Frame) -> Lazy:
        inner, values, source = enter(frame)
        return Lazy((element(inner) for _ in _rounds(levels, 0, values, inner)), source)

    if isinstance(node, ast.ListComp):
        return make_list
    if isinstance(node, ast.SetComp):
        return make_set
    return make_dict if isinstance(node, ast.DictComp) else make_lazy


def _rounds(
    levels: list[_Level], depth: int, values: Iterator[Any], frame: Frame
) -> Iterator[None]:
    """Set the local values round by round; yield where the element is wanted."""
    _, store, conditions, cost, cost_if_passed = levels[depth]
    budget = frame[BUDGET]
    last = depth + 1 == len(levels)
    for value in values:
        budget.charge(cost)
        store(frame, value)
        for condition in conditions:
            if not condition(frame):
                break
        else:
            if cost_if_passed:
                budget.charge(cost_if_passed)
            if last:
                yield
            else:
                following = levels[depth + 1].values
                assert following is not None  # noqa: S101 - only the first has none
                yield from _rounds(levels, depth + 1, iterate(following(frame), budget), frame)


def _levels(
    compiler: ExpressionCompiler, generators: list[ast.comprehension], names: dict[str, int]
) -> list[_Level]:
    levels: list[_Level] = []
    for generator in generators:
        values = compiler.compile(generator.iter) if levels else None
        if levels:
            levels[-1] = levels[-1]._replace(cost_if_passed=compiler.take_cost())
        conditions = tuple(compiler.compile(condition) for condition in generator.ifs)
        store = _store(generator.target, names)
        levels.append(_Level(values, store, conditions, 1 + compiler.take_cost(), 0))
    return levels


def _bind(compiler: ExpressionCompiler, target: ast.expr, names: dict[str, int]) -> None:
    """Give every name of a target its place."""
    if isinstance(target, ast.Name):
        compiler.check_name(target, target.id, frozenset({"_"}))
        names.setdefault(target.id, len(names))
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            _bind(compiler, each.value if isinstance(each, ast.Starred) else each, names)
    else:
        compiler.refuse(target, "a comprehension gives its values to names only")


def _store(target: ast.expr, names: dict[str, int]) -> Store:
    if isinstance(target, ast.Name):
        slot = LOCALS + names[target.id]
        return lambda frame, value: frame.__setitem__(slot, value)
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    stores = [
        _store(each.value if isinstance(each, ast.Starred) else each, names) for each in parts
    ]
    starred = next((n for n, each in enumerate(parts) if isinstance(each, ast.Starred)), None)

    def run(frame: Frame, value: Any) -> None:
        values = take(value, frame[BUDGET])
        if starred is not None:
            if len(values) < len(stores) - 1:
                raise EvaluationFailure("ValueError", f"not enough values to unpack: {len(values)}")
            end = len(values) - (len(stores) - 1 - starred)
            values[starred:end] = [values[starred:end]]
        if len(values) != len(stores):
            raise EvaluationFailure(
                "ValueError", f"{describe(value)} of {len(values)} values for {len(stores)} names"
            )
        for store, each in zip(stores, values, strict=True):
            store(frame, each)

    return run


def compile_lambda(compiler: ExpressionCompiler, node: ast.Lambda) -> Run:
    """Return the function that makes the Python function of a lambda."""
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        compiler.refuse(node, "a lambda takes positional parameters only")
    parameters = [*arguments.posonlyargs, *arguments.args]
    names: dict[str, int] = {}
    for parameter in parameters:
        compiler.check_name(node, parameter.arg, frozenset({"_"}))
        names[parameter.arg] = len(names)
    defaults = [compiler.compile(default) for default in arguments.defaults]
    with compiler.frame(names):
        body = compiler.compile(node.body)
        cost = 1 + compiler.take_cost()
    most = len(parameters)
    least = most - len(defaults)

    def make(frame: Frame) -> Callable[..., Any]:
        budget = frame[BUDGET]
        default_values = [default(frame) for default in defaults]

        def call(*values: Any) -> Any:
            if not least <= len(values) <= most:
                raise EvaluationFailure(
                    "TypeError", f"the lambda takes {most} values, not {len(values)}"
                )
            budget.charge(cost)
            rest = default_values[len(values) - least :]
            return body([frame, frame[SCOPE], budget, *values, *rest])

        return call

    return make
