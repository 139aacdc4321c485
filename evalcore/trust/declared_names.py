"""Which names a module has, as far as its text says so; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

# With these a module can have names that its text does not show.
_DYNAMIC: Final = frozenset(
    {"__dict__", "__getattr__", "exec", "globals", "locals", "modules", "setattr", "vars"}
)

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class ModuleNames(NamedTuple):
    """The functions and classes of a module, and all that may be a name of it.

    Names of inner scopes are among the latter: what is not among them, the module does not have.
    """

    functions: tuple[str, ...]
    names: frozenset[str]


def declared_names(source: bytes) -> ModuleNames | None:
    """Return the names of a module; None if its text does not show them all.

    Raise `SyntaxError` or `ValueError` for what is no Python.
    """
    tree = ast.parse(source)
    names: set[str] = set()
    for node in ast.walk(tree):
        for name in _bound_by(node):
            if name == "*":
                return None
            names.add(name)
        if isinstance(node, ast.Name | ast.FunctionDef) and _text_of(node) in _DYNAMIC:
            return None
        if isinstance(node, ast.Attribute) and node.attr in _DYNAMIC:
            return None
    functions = (node.name for node in tree.body if isinstance(node, _FUNCTIONS))
    return ModuleNames(tuple(functions), frozenset(names))


def _text_of(node: ast.Name | ast.FunctionDef) -> str:
    return node.id if isinstance(node, ast.Name) else node.name


def _bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        case ast.MatchAs() | ast.MatchStar() if node.name is not None:
            yield node.name
        case ast.MatchMapping() if node.rest is not None:
            yield node.rest
        case _:
            return
