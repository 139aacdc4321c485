"""Functions of the program that defined a suite: how the plan names them, how they are found."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from evalcore.errors import EvalError, UsageError
from evalcore.trust.imports import ImportPolicy

LOCAL: Final = "local:"
_PLAIN: Final = (str, int, float, bool, type(None))
_DEEPEST: Final = 4


def find_callable(reference: str, imports: ImportPolicy, objects: Mapping[str, Any]) -> Any:
    """Return what `local:NAME` or `module:function` names; errors as `ImportPolicy.load`.

    `objects` are the functions and scorers of the program that defined the suite, by reference.
    """
    if reference in objects:
        return objects[reference]
    try:
        return imports.load(reference)
    except EvalError as error:
        if not reference.startswith(LOCAL):
            raise
        name = reference.removeprefix(LOCAL)
        raise UsageError(
            f"'{name}' belongs to the Python program that defined this suite; run the suite there, "
            "or name the function as 'module:function'"
        ) from error


def name_of(thing: Any) -> str:
    """Return what a function, class or instance is called in a plan."""
    if isinstance(thing, functools.partial):
        return name_of(thing.func)
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return str(name).rpartition("<locals>.")[2].replace("<lambda>", "lambda")


def behaviour_of(thing: Any) -> str:
    """Return a SHA-256 (hex) that changes when the code of a callable does.

    Of its module, name and source, the values that it closes over and its defaults, as far as
    they are plain; what it calls is not looked into.
    """
    described = json.dumps(_described(thing, 0), sort_keys=True, default=str)
    return hashlib.sha256(described.encode("utf-8", "replace")).hexdigest()


def _described(thing: Any, depth: int) -> Any:
    if isinstance(thing, _PLAIN):
        return thing
    if depth >= _DEEPEST:
        return type(thing).__qualname__
    if isinstance(thing, list | tuple):
        return [_described(item, depth + 1) for item in thing]
    if isinstance(thing, Mapping):
        return {str(key): _described(value, depth + 1) for key, value in thing.items()}
    if isinstance(thing, functools.partial):
        parts = (thing.func, thing.args, thing.keywords)
        return [_described(part, depth + 1) for part in parts]
    if inspect.ismethod(thing):
        return [_described(thing.__func__, depth + 1), _described(thing.__self__, depth + 1)]
    if inspect.isfunction(thing):
        cells = [_cell(cell) for cell in thing.__closure__ or ()]
        bound = (thing.__defaults__, thing.__kwdefaults__, cells)
        return [*_named(thing), *(_described(value, depth + 1) for value in bound)]
    if inspect.isclass(thing) or inspect.isbuiltin(thing):
        return _named(thing)
    return [*_named(type(thing)), _described(getattr(thing, "__dict__", {}), depth + 1)]


def _named(thing: Callable[..., Any]) -> list[str]:
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):
        code = getattr(thing, "__code__", None)
        source = "" if code is None else f"{code.co_code.hex()} {code.co_consts} {code.co_names}"
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    return [str(module), str(name), source]


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
