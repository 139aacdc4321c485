"""Which modules a Python text imports, as its syntax tree shows; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

_LOADERS: Final = frozenset({"import_module", "__import__", "run_module", "find_spec"})
_CALLED: Final = tuple(name.encode() for name in sorted(_LOADERS))
_BODIES: Final = ("body", "orelse", "finalbody", "handlers", "cases")


def imported_names(source: bytes, package: str = "") -> frozenset[str]:
    """Return the dotted names that may be modules which the text imports, wherever it does.

    `package` is what relative names begin at: the module's package, or itself if it is one. Of
    `from a import b` both `a` and `a.b` are returned, of a package's `__all__` its members; names
    that `importlib.import_module` gets as text count too. A text that is no Python imports nothing.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names: set[str] = set()
    # Calls stand in expressions, of which there are many; few texts have such a call.
    nodes = ast.walk(tree) if any(word in source for word in _CALLED) else _statements(tree)
    for node in nodes:
        names.update(_imported_by(node, package))
    return frozenset(name for name in names if name)


def path_entries(source: bytes) -> tuple[str, ...]:
    """Return the texts in calls that change `sys.path`: folders, as the module may name them.

    "" and ".." are among them, for `Path(__file__).parent` and what lies above.
    """
    if b"sys.path" not in source:
        return ()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    entries = {"", ".."}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="path"))):
                entries.update(_text(inner) for inner in ast.walk(node))
            case _:
                continue
    return tuple(sorted(entries))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the statements of a module, those within others too."""
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        yield node
        for name in _BODIES:
            waiting.extend(getattr(node, name, ()))


def _imported_by(node: ast.AST, package: str) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom():
            base = _absolute("." * node.level + (node.module or ""), package)
            yield base
            if base:
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
            else:
                yield from (alias.name for alias in node.names if alias.name != "*")
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _LOADERS:
            yield _absolute(_text(node.args[0]) if node.args else "", package)
        case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple() as listed):
            yield from (
                f"{package}.{_text(element)}"
                for element in listed.elts
                if package and _text(element)
            )
        case _:
            return


def _text(node: ast.AST) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _absolute(name: str, package: str) -> str:
    """Return a name that may begin with dots as an absolute one; "" if it leads out of its root."""
    rest = name.lstrip(".")
    level = len(name) - len(rest)
    if not level:
        return name
    parts = package.split(".") if package else []
    if level - 1 > len(parts):
        return ""
    return ".".join([*parts[: len(parts) - level + 1], *([rest] if rest else [])])
