"""What a query of a user may be: one statement that reads the views and nothing else.

The database is closed besides (`history.closed`). Some functions of DuckDB do more than they say
(`enable_logging` writes files, and ends the process where it may not), so what a statement calls is
looked up in DuckDB's own parse of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import _duckdb as duckdb
import orjson

from evalcore.errors import UsageError
from evalcore.history.columns import TABLES
from evalcore.mistakes.foreign_text import is_unicode
from evalcore.mistakes.wording import did_you_mean

ITEMS: Final = "items"
_MOST_CHARACTERS: Final = 100_000
_MOST_REASON: Final = 400
_TABLE_FUNCTIONS: Final = frozenset(
    {
        *(ITEMS, "range", "generate_series", "unnest", "repeat", "repeat_row"),
        *("json_each", "json_tree", "histogram", "histogram_values"),
    }
)
_FILE_FUNCTIONS: Final = re.compile(r"^(?:read_|parquet_|sniff_|glob$|.*_scan)|_scan$")
_REFUSED_FUNCTIONS: Final = frozenset(
    {"write_log", "current_setting", "getenv", "setseed", "nextval", "currval", "query"}
)
_NAMED_FILE: Final = re.compile(r"[/\\:*?]|\.\w{1,8}$")
_VERBS: Final = {
    "ATTACH": "no other database can be attached",
    "CALL": "procedures cannot be called",
    "COPY": "nothing can be written",
    "CREATE": "nothing can be created; PIVOT needs `IN (…)` inside of a SELECT",
    "EXPLAIN": "plans are not shown",
    "EXPORT": "nothing can be written",
    "EXTENSION": "no extension can be loaded",
    "LOAD": "no extension can be loaded",
    "PRAGMA": "settings cannot be changed",
    "SET": "settings cannot be changed",
    "VARIABLE_SET": "settings cannot be changed",
    "DETACH": "no other database can be attached",
}
_CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "lock_configuration": "true",
    "memory_limit": "128MB",
    "threads": "1",
}
_ONLY_READS: Final = "the history can only be read"


class QueryError(UsageError):
    """A query that is refused or wrong; `exit_code` 2."""


class SelectStatement(NamedTuple):
    """One checked statement, and the runs that it names by `items('RUN')`."""

    sql: str
    runs: tuple[str, ...]


def parse_statement(sql: str) -> SelectStatement:
    """Return the one statement of a text; raise `QueryError` with the reason for any other."""
    if len(sql) > _MOST_CHARACTERS:
        raise QueryError(f"the query has more than {_MOST_CHARACTERS:,} characters")
    if "\0" in sql:
        raise QueryError("the query has a NUL character")
    if not is_unicode(sql):
        raise QueryError("the query is not valid Unicode text")
    # `IMPORT DATABASE` reads files while it is parsed.
    connection = duckdb.connect(":memory:", config=_CLOSED)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise QueryError(_count_reason([_kind(statement) for statement in statements]))
        kind = _kind(statements[0])
        if kind != "SELECT":
            raise QueryError(f"{kind}: {_VERBS.get(kind, _ONLY_READS)}; ask with one SELECT")
        row = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    except duckdb.Error as error:
        raise QueryError(short_reason(error)) from error
    finally:
        connection.close()
    tree = _syntax_tree(row[0]) if row else {"error": True}
    if tree.get("error"):
        raise QueryError(f"{_VERBS['PRAGMA']}; ask with one SELECT")
    return SelectStatement(sql, tuple(dict.fromkeys(_checked_runs(tree))))


def _syntax_tree(text: str) -> Any:
    """Return what DuckDB writes of a statement. Constants such as 1e400 are `Infinity` there."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text)
    except RecursionError:
        raise QueryError(
            "the query is nested too deeply; write it with fewer functions or operators inside "
            "of each other, for example with `IN (…)` or `WITH`"
        ) from None


def short_reason(error: duckdb.Error) -> str:
    """Return DuckDB's message without the excerpt of the query, on one line."""
    lines: list[str] = []
    for line in str(error).splitlines():
        if re.match(r"LINE \d+:|\s*\^", line):
            break
        if line.strip():
            lines.append(line.strip())
    text = " ".join(lines[:3]) or type(error).__name__
    if isinstance(error, duckdb.InternalException):
        text = f"DuckDB failed: {lines[0] if lines else ''}"
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"


def _kind(statement: duckdb.Statement) -> str:
    return str(statement.type).rpartition(".")[2]


def _count_reason(kinds: list[str]) -> str:
    if not kinds:
        return "there is no statement; `evalcore query --schema` shows the views"
    refused = next((kind for kind in kinds if kind != "SELECT"), None)
    why = "" if refused is None else f" ({refused}: {_VERBS.get(refused, _ONLY_READS)})"
    return f"one statement at a time, and these are {len(kinds)}{why}"


def _checked_runs(tree: Any) -> Iterator[str]:
    """Yield the texts that `items` is called with; raise for what a query may not use."""
    for node in _nodes(tree):
        match node:
            case {"type": "TABLE_FUNCTION", "function": {"function_name": str(name), **call}}:
                _check_table_function(name)
                if name.lower() == ITEMS:
                    yield _item_run(call.get("children"))
            case {"type": "FUNCTION", "function_name": str(name)}:
                if name.lower() in _REFUSED_FUNCTIONS:
                    raise QueryError(f"{name}(): a query has no use of settings or of the process")
            case {"type": "BASE_TABLE", "table_name": str(name)}:
                _check_table(name)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a JSON value; without recursion, which a deep query could exhaust."""
    pending = [tree]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _check_table_function(name: str) -> None:
    lowered = name.lower()
    if lowered in _TABLE_FUNCTIONS:
        return
    if _FILE_FUNCTIONS.search(lowered):
        raise QueryError(f"{name}(): no file can be read but the history's own")
    functions = ", ".join(sorted(_TABLE_FUNCTIONS))
    raise QueryError(f"{name}() is no table function of the history; there are {functions}")


def _check_table(name: str) -> None:
    """Refuse what DuckDB would take for a file; an unknown view is DuckDB's to tell."""
    if _NAMED_FILE.search(name):
        hint = did_you_mean(name, TABLES)
        raise QueryError(f"'{name}': no file can be read but the history's own{hint}")


def _item_run(arguments: Any) -> str:
    match arguments:
        case [{"class": "CONSTANT", "value": {"type": {"id": "VARCHAR"}, "value": str(name)}}]:
            return name
    raise QueryError(f"{ITEMS}() takes one run by its name as a text: {ITEMS}('latest')")
