"""What each kind of node of an expression compiles to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

from evalcore.expressions.calls import compile_call
from evalcore.expressions.compiler import ExpressionCompiler, NodeCompilers, compile_elements
from evalcore.expressions.frames import BUDGET, Frame, Run
from evalcore.expressions.functions import FUNCTIONS
from evalcore.expressions.lookup import attribute, item
from evalcore.expressions.loops import compile_comprehension
from evalcore.expressions.operators import BINARY, COMPARING, UNARY
from evalcore.expressions.texts import formatted
from evalcore.expressions.values import (
    LARGEST,
    SCALARS,
    EvaluationFailure,
    check_key,
    describe,
    plain,
)

_CONVERSIONS: Final = {-1: None, ord("s"): "s", ord("r"): "r", ord("a"): "a"}


def _constant(compiler: ExpressionCompiler, node: ast.Constant) -> Run:
    value = node.value
    if type(value) not in SCALARS:
        compiler.refuse(node, f"{describe(value)} is not available")
    if type(value) is int and value >= LARGEST:
        compiler.refuse(node, "the integer is too large")
    return lambda _: value


def _name(compiler: ExpressionCompiler, node: ast.Name) -> Run:
    return compiler.lookup(compiler.check_name(node, node.id))


def _attribute(compiler: ExpressionCompiler, node: ast.Attribute) -> Run:
    name = compiler.check_name(node, node.attr, frozenset())
    target = compiler.compile(node.value)
    compiler.cost += 1

    def run(frame: Frame) -> Any:
        value = target(frame)
        if type(value) is dict and name in value:
            return value[name]
        return attribute(value, name)

    return run


def _subscript(compiler: ExpressionCompiler, node: ast.Subscript) -> Run:
    target = compiler.compile(node.value)
    index = (
        _slice(compiler, node.slice)
        if isinstance(node.slice, ast.Slice)
        else (compiler.compile(node.slice))
    )
    compiler.cost += 1
    return lambda frame: item(frame[BUDGET], target(frame), index(frame))


def _slice(compiler: ExpressionCompiler, node: ast.Slice) -> Run:
    bounds = [
        compiler.compile(bound) if bound is not None else (lambda _: None)
        for bound in (node.lower, node.upper, node.step)
    ]
    return lambda frame: slice(*(plain(bound(frame)) for bound in bounds))


def _binary(compiler: ExpressionCompiler, node: ast.BinOp) -> Run:
    operator = BINARY.get(type(node.op).__name__)
    if operator is None:
        compiler.refuse(node, "this operator is not available")
    left, right = compiler.compile(node.left), compiler.compile(node.right)
    compiler.cost += 1
    return lambda frame: operator(frame[BUDGET], left(frame), right(frame))


def _unary(compiler: ExpressionCompiler, node: ast.UnaryOp) -> Run:
    operator = UNARY[type(node.op).__name__]
    operand = compiler.compile(node.operand)
    compiler.cost += 1
    return lambda frame: operator(operand(frame))


def _boolean(compiler: ExpressionCompiler, node: ast.BoolOp) -> Run:
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


def _compare(compiler: ExpressionCompiler, node: ast.Compare) -> Run:
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


def _conditional(compiler: ExpressionCompiler, node: ast.IfExp) -> Run:
    test = compiler.compile(node.test)
    then, otherwise = compiler.compile(node.body), compiler.compile(node.orelse)
    compiler.cost += 1
    return lambda frame: then(frame) if test(frame) else otherwise(frame)


def _list(compiler: ExpressionCompiler, node: ast.List) -> Run:
    return compile_elements(compiler, node.elts)


def _tuple(compiler: ExpressionCompiler, node: ast.Tuple) -> Run:
    elements = compile_elements(compiler, node.elts)
    return lambda frame: tuple(elements(frame))


def _set(compiler: ExpressionCompiler, node: ast.Set) -> Run:
    elements = compile_elements(compiler, node.elts)
    make_set = FUNCTIONS["set"]
    return lambda frame: make_set(frame[BUDGET], elements(frame))


def _dict(compiler: ExpressionCompiler, node: ast.Dict) -> Run:
    pairs = [
        (None if key is None else compiler.compile(key), compiler.compile(value))
        for key, value in zip(node.keys, node.values, strict=True)
    ]
    compiler.cost += len(pairs)
    make_dict = FUNCTIONS["dict"]

    def run(frame: Frame) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, value in pairs:
            if key is None:
                result.update(_mapping(value(frame), make_dict, frame))
                continue
            its_key = key(frame)
            check_key(its_key, frame[BUDGET])
            result[its_key] = value(frame)
        return result

    return run


def _mapping(value: Any, make_dict: Callable[..., Any], frame: Frame) -> Any:
    if not isinstance(value, Mapping):
        raise EvaluationFailure("TypeError", f"'**' takes a mapping, not {describe(value)}")
    return make_dict(frame[BUDGET], value)


def _joined(compiler: ExpressionCompiler, node: ast.JoinedStr) -> Run:
    parts = [compiler.compile(part) for part in node.values]
    compiler.cost += len(parts)

    def run(frame: Frame) -> str:
        texts = [part(frame) for part in parts]
        frame[BUDGET].room(sum(map(len, texts)))
        return "".join(texts)

    return run


def _field(compiler: ExpressionCompiler, node: ast.FormattedValue) -> Run:
    value = compiler.compile(node.value)
    conversion = _CONVERSIONS[node.conversion]
    if node.format_spec is None:
        return lambda frame: formatted(value(frame), conversion, "", frame[BUDGET])
    spec = compiler.compile(node.format_spec)
    return lambda frame: formatted(value(frame), conversion, spec(frame), frame[BUDGET])


NODES: Final[NodeCompilers] = {
    ast.Attribute: _attribute,
    ast.BinOp: _binary,
    ast.BoolOp: _boolean,
    ast.Call: compile_call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.DictComp: compile_comprehension,
    ast.FormattedValue: _field,
    ast.GeneratorExp: compile_comprehension,
    ast.IfExp: _conditional,
    ast.JoinedStr: _joined,
    ast.List: _list,
    ast.ListComp: compile_comprehension,
    ast.Name: _name,
    ast.Set: _set,
    ast.SetComp: compile_comprehension,
    ast.Subscript: _subscript,
    ast.Tuple: _tuple,
    ast.UnaryOp: _unary,
}
