"""The table of statements: the key that names each, and where its class stands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from evalcore.scripts.statements.statement import Statement


class StatementRow(NamedTuple):
    """The module of a statement in this package, and its class."""

    module: str
    class_name: str


STATEMENTS: Final[Mapping[str, StatementRow]] = MappingProxyType(
    {
        "eval": StatementRow("evaluate", "Eval"),
        "call": StatementRow("call", "CallTool"),
        "if": StatementRow("conditional", "If"),
        "for_each": StatementRow("for_each", "ForEach"),
        "match": StatementRow("match", "Match"),
        "starlark": StatementRow("starlark", "Starlark"),
    }
)


@cache
def statement_class(kind: str) -> type[Statement]:
    """Return the class of a statement, a row of `STATEMENTS`."""
    row = STATEMENTS[kind]
    module = import_module(f"evalcore.scripts.statements.{row.module}")
    return cast("type[Statement]", getattr(module, row.class_name))
