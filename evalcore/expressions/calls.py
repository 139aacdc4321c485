"""Calls: of the functions by name and of the methods of builtin classes, and of nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.collection_methods import (
    DICT_METHODS,
    FLOAT_METHODS,
    FROZEN_SET_METHODS,
    LIST_METHODS,
    MAPPING_METHODS,
    SET_METHODS,
    TUPLE_METHODS,
    VIEW_METHODS,
)
from evalcore.expressions.compiler import ExpressionCompiler, compile_elements
from evalcore.expressions.frames import BUDGET, SCOPE, Frame, Run
from evalcore.expressions.functions import (
    FIRST_IS_FUNCTION,
    FUNCTIONS,
    KEY_IS_FUNCTION,
    TYPES,
    Callback,
)
from evalcore.expressions.lookup import suggestion
from evalcore.expressions.loops import compile_lambda
from evalcore.expressions.text_methods import TEXT_METHODS
from evalcore.expressions.values import VIEWS, EvaluationFailure, describe

Named = Callable[[Frame], dict[str, Any]]

METHODS: Final[Mapping[type, Mapping[str, Callable[..., Any]]]] = {
    str: TEXT_METHODS,
    list: LIST_METHODS,
    tuple: TUPLE_METHODS,
    dict: DICT_METHODS,
    set: SET_METHODS,
    frozenset: FROZEN_SET_METHODS,
    float: FLOAT_METHODS,
    **dict.fromkeys(VIEWS, VIEW_METHODS),
}
# What takes a function itself, or the name of a type.
_NEEDING_FUNCTIONS: Final = FIRST_IS_FUNCTION | {"isinstance"}
_ARGUMENTS: Final = re.compile(r"[\w.<>]+\(\) (?:takes|missing|got)")


def compile_call(compiler: ExpressionCompiler, node: ast.Call) -> Run:
    """Return the function of a call."""
    compiler.cost += 1
    for keyword in node.keywords:
        if keyword.arg is not None:
            compiler.check_name(keyword.value, keyword.arg, frozenset({"_"}))
    target = node.func
    if isinstance(target, ast.Attribute):
        name = compiler.check_name(target, target.attr, frozenset())
        return _method_call(compiler, node, compiler.compile(target.value), name)
    if not isinstance(target, ast.Name):
        compiler.refuse(target, "only functions and methods can be called, by their names")
    name = compiler.check_name(target, target.id, frozenset())
    if compiler.is_local(name) or name not in FUNCTIONS:
        _arguments(compiler, node, name)  # what is forbidden is refused here, too
        return _unknown(name)
    if name == "isinstance":
        return _is_instance(compiler, node)
    function = FUNCTIONS[name]
    values, named = _arguments(compiler, node, name)

    def run(frame: Frame) -> Any:
        try:
            if named is None:
                return function(frame[BUDGET], *values(frame))
            return function(frame[BUDGET], *values(frame), **named(frame))
        except TypeError as error:
            raise _wrong_arguments(name, error) from None

    return run


def _unknown(name: str) -> Run:
    def run(frame: Frame) -> Any:
        if name in frame[SCOPE]:
            raise EvaluationFailure("TypeError", f"{name!r} is a value and cannot be called")
        raise EvaluationFailure("NameError", f"no function {name!r}{suggestion(name, FUNCTIONS)}")

    return run


def _wrong_arguments(name: str, error: TypeError) -> Exception:
    """Return the error without the names of what stands behind a function."""
    if _ARGUMENTS.match(str(error)):
        return EvaluationFailure("TypeError", f"{name}() does not take these arguments")
    return error


def _method_call(compiler: ExpressionCompiler, node: ast.Call, target: Run, name: str) -> Run:
    values, named = _arguments(compiler, node, name)

    def run(frame: Frame) -> Any:
        value = target(frame)
        method = METHODS.get(type(value), _NONE).get(name) or find_method(value, name)
        try:
            if named is None:
                return method(frame[BUDGET], value, *values(frame))
            return method(frame[BUDGET], value, *values(frame), **named(frame))
        except TypeError as error:
            raise _wrong_arguments(name, error) from None

    return run


_NONE: Final[Mapping[str, Callable[..., Any]]] = {}


def find_method(value: Any, name: str) -> Callable[..., Any]:
    """Return a method of the value's builtin class; raise `EvaluationFailure` where there is none.

    What a class derived from a builtin one has of its own is never called.
    """
    methods = _NONE
    for base, base_methods in METHODS.items():
        if isinstance(value, base):
            methods = base_methods
            break
    else:
        if isinstance(value, Mapping):
            methods = MAPPING_METHODS
    method = methods.get(name)
    if method is None:
        near = suggestion(name, methods)
        message = f"{describe(value)} has no method {name!r} that can be called here{near}"
        raise EvaluationFailure("AttributeError", message)
    return method


def _arguments(
    compiler: ExpressionCompiler, node: ast.Call, name: str
) -> tuple[Callable[[Frame], list[Any]], Named | None]:
    """Return what gives a call's values: those in order, and those with names (None for none).

    Only here, where the text itself names it, can a function become a value.
    """
    nodes = list(node.args)
    first: Run | None = None
    if name in FIRST_IS_FUNCTION and isinstance(node.func, ast.Name):
        if node.keywords or not nodes or isinstance(nodes[0], ast.Starred):
            compiler.refuse(node, f"{name}() takes a function and then what it is applied to")
        first = _callback(compiler, nodes.pop(0))
    values = compile_elements(compiler, nodes)
    named = _named(compiler, node.keywords, name)
    if first is None:
        return values, named
    function = first
    return lambda frame: [function(frame), *values(frame)], named


def _named(compiler: ExpressionCompiler, keywords: list[ast.keyword], name: str) -> Named | None:
    if not keywords:
        return None
    parts: list[tuple[str | None, Run]] = []
    for keyword in keywords:
        if name in KEY_IS_FUNCTION and keyword.arg is None:
            compiler.refuse(keyword.value, f"{name}() takes no '**'")
        if name in KEY_IS_FUNCTION and keyword.arg == "key":
            parts.append(("key", _callback(compiler, keyword.value)))
        else:
            parts.append((keyword.arg, compiler.compile(keyword.value)))
    compiler.cost += len(parts)

    def run(frame: Frame) -> dict[str, Any]:
        named_values: dict[str, Any] = {}
        for key, part in parts:
            named_values |= _spread(part(frame)) if key is None else {key: part(frame)}
        return named_values

    return run


def _spread(value: Any) -> dict[str, Any]:
    """Return the names and values of what stands after `**`."""
    if not isinstance(value, Mapping):
        raise EvaluationFailure("TypeError", f"'**' takes a mapping, not {describe(value)}")
    for name in value:
        if type(name) is not str or name.startswith("_"):
            raise EvaluationFailure(
                "TypeError", "'**' takes a mapping of names without '_' before them"
            )
    return dict(value)


def _callback(compiler: ExpressionCompiler, node: ast.expr) -> Run:
    """Compile what stands where a function is wanted: a lambda, a name, `str.lower`, or None."""
    if isinstance(node, ast.Lambda):
        make = compile_lambda(compiler, node)
        return lambda frame: Callback(make(frame))
    if isinstance(node, ast.Constant) and node.value is None:
        return lambda _: None
    if isinstance(node, ast.Name) and not compiler.is_local(node.id):
        function = FUNCTIONS.get(node.id)
        if function is not None and node.id not in _NEEDING_FUNCTIONS:
            return lambda frame: Callback(partial(function, frame[BUDGET]))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        method = METHODS.get(TYPES.get(node.value.id, type(None)), _NONE).get(node.attr)
        if method is not None:
            base = TYPES[node.value.id]
            return lambda frame: Callback(partial(_of_class, base, method, frame[BUDGET]))
    return compiler.refuse(node, "a function is wanted here: a lambda, or a function's name")


def _of_class(
    base: type, method: Callable[..., Any], budget: Budget, value: Any = None, *rest: Any
) -> Any:
    if not isinstance(value, base):
        raise EvaluationFailure("TypeError", f"a {base.__name__} is wanted, not {describe(value)}")
    return method(budget, value, *rest)


def _is_instance(compiler: ExpressionCompiler, node: ast.Call) -> Run:
    if len(node.args) != 2 or node.keywords or isinstance(node.args[0], ast.Starred):
        compiler.refuse(node, "isinstance() takes a value and the name of a type")
    kinds = tuple(_types(compiler, node.args[1]))
    value = compiler.compile(node.args[0])
    return lambda frame: isinstance(value(frame), kinds)


def _types(compiler: ExpressionCompiler, node: ast.expr) -> list[type]:
    if isinstance(node, ast.Name) and node.id in TYPES:
        return [TYPES[node.id]]
    if isinstance(node, ast.Tuple):
        return [kind for each in node.elts for kind in _types(compiler, each)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_types(compiler, node.left), *_types(compiler, node.right)]
    if isinstance(node, ast.Constant) and node.value is None:
        return [type(None)]
    type_names = ", ".join(sorted(TYPES))
    return compiler.refuse(node, f"isinstance() takes the names of types ({type_names})")
