"""`evalcore query`: SQL over the history, read-only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.fresh_history import refresh
from evalcore.cli.number_range import NumberRange
from evalcore.cli.options import chosen_store, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import EvalError, UsageError
from evalcore.report.document import on_one_line
from evalcore.report.tables import render_csv, render_json, render_table
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import temporary_folder
from evalcore.trust.text import sanitize_terminal

if TYPE_CHECKING:
    from evalcore.history.query import Answer, QueryLimits

_FORMATS: Final = ("table", "csv", "json", "parquet")
_TABLE_ROWS: Final = 100
_PROMPT, _MORE = "evalcore> ", "      ...> "
_WELCOME: Final = (
    "One SELECT over the views runs, gates, cases, assertions, and items('RUN'); it ends in ';'. "
    ".schema shows the columns, .quit ends."
)


@click.command()
@click.argument("sql", required=False, metavar="[SQL]")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="[default: table]")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most N rows.  [default: 100 of a table, else all]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=NumberRange(min=0.01),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A query that takes longer is stopped.",
)
@click.option("--memory", "memory_mb", type=click.IntRange(min=32), default=1024, metavar="MB")
@click.option("--schema", is_flag=True, help="Show the views, their columns, types and units.")
@click.option("--no-sync", is_flag=True, help="Ask the tables as they are.")
@store_option
def query(sql: str | None, store: str | None, no_sync: bool, **flags: Any) -> None:
    """Ask the history by SQL: one SELECT over the views runs, gates, cases and assertions.

    items('RUN') has the rows of a run with their outputs. Nothing can be written, no other file
    can be read. Without SQL: a prompt on a terminal, else SQL from standard input.
    """
    form = _form(flags["form"], flags["as_json"], flags["output"])
    if flags["schema"]:
        _show_schema(form)
        return
    if sql is None and not sys.stdin.isatty():
        sql = sys.stdin.read()
    opened = chosen_store(store)
    if sql is not None:
        from evalcore.history.query import parse_statement

        parse_statement(sql)  # a wrong query is told before anything is brought up to date
    if not no_sync:
        refresh(opened)
    limits = _limits(flags)
    if sql is None:
        _converse(opened, limits, flags["limit"])
        return
    _answer(opened, sql, limits, form=form, limit=flags["limit"], output=flags["output"])


def _form(named: str | None, as_json: bool, output: Path | None) -> str:
    if as_json and named not in {None, "json"}:
        raise UsageError(f"--json and --format {named}: one format at a time")
    ending = output.suffix.lower().removeprefix(".") if output is not None else ""
    form = "json" if as_json else named or (ending if ending in _FORMATS else "table")
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise UsageError("--format parquet: a terminal shows no Parquet; write it with -o FILE")
    return form


def _limits(flags: dict[str, Any]) -> QueryLimits:
    from evalcore.history.query import QueryLimits

    return QueryLimits(memory_mb=flags["memory_mb"], time_s=flags["timeout_s"])


def _answer(
    store: ObjectStore,
    sql: str,
    limits: QueryLimits,
    *,
    form: str,
    limit: int | None,
    output: Path | None,
) -> None:
    from evalcore.history.query import ask

    if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
        raise UsageError(f"-o: {output} cannot be written: no such folder, or a folder itself")
    most = limit or (_TABLE_ROWS if form == "table" else None)
    with temporary_folder("evalcore-query-") as folder:
        written = folder / "answer"
        fetched = None if most is None else most + 1
        if form == "parquet":
            with ask(store, sql, limits, limit=most, output=written) as answer:
                answer.write_parquet(written)
            data: Iterable[bytes] = (written.read_bytes(),)
            _write(data, output)
            return
        with ask(store, sql, limits, limit=fetched) as answer:
            cut = _Cut(answer, most)
            _write((text.encode("utf-8", "replace") for text in _texts(cut, form, output)), output)
        if cut.more:
            click.echo(f"… more rows than {most}; --limit N shows N", err=True)


class _Cut:
    """The first rows of an answer; `more` says whether there were others."""

    def __init__(self, answer: Answer, most: int | None) -> None:
        self.columns = answer.columns
        self.more = False
        self._answer, self._most = answer, most

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        left = self._most
        for batch in self._answer.batches():
            if left is None:
                yield batch
                continue
            self.more = len(batch) > left
            yield list(islice(batch, left))
            left -= len(batch)
            if self.more:
                return


def _texts(cut: _Cut, form: str, output: Path | None) -> Iterator[str]:
    match form:
        case "json":
            yield from render_json(cut.columns, cut.batches())
        case "csv":
            on_terminal = output is None and sys.stdout.isatty()
            for text in render_csv(cut.columns, cut.batches()):
                yield sanitize_terminal(text) if on_terminal else text
        case _:
            for line in render_table(cut.columns, cut.batches(), one_line):
                yield f"{line}\n"


def _write(pieces: Iterable[bytes], output: Path | None) -> None:
    if output is None:
        stream = sys.stdout.buffer
        for piece in pieces:
            stream.write(piece)
        stream.flush()
        return
    part = output.with_name(f".{output.name}.part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        part.replace(output)
    except OSError as error:
        raise UsageError(f"-o: {output} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _show_schema(form: str) -> None:
    from evalcore.history.columns import TABLES

    if form == "json":
        views = [
            {
                "view": table.name,
                "row": table.row,
                "columns": [
                    {
                        "name": column.name,
                        "type": column.type,
                        "unit": column.unit or None,
                        "meaning": column.meaning,
                    }
                    for column in table.columns
                ],
            }
            for table in TABLES.values()
        ]
        click.echo(on_one_line(orjson.dumps(views).decode()))
        return
    for table in TABLES.values():
        click.echo(f"{table.name}: a row is {table.row}")
        for column in table.columns:
            unit = f"({column.unit}) " if column.unit else ""
            click.echo(f"  {column.name:<18} {column.type:<10} {unit}{column.meaning}")
        click.echo()
    click.echo("items('RUN'): the rows of a run with outputs and evidence, one for each work item")


def _converse(store: ObjectStore, limits: QueryLimits, limit: int | None) -> None:
    """Answer statements from a terminal until its end; a mistake does not end it."""
    with suppress(ImportError):
        import readline  # noqa: F401  (edits the lines that `input` reads)
    click.echo(_WELCOME, err=True)
    for text in _statements():
        if text == ".schema":
            _show_schema("table")
            continue
        try:
            _answer(store, text, limits, form="table", limit=limit, output=None)
        except EvalError as error:
            click.echo(one_line(str(error)), err=True)


def _statements() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            line = input(_MORE if lines else _PROMPT)
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(err=True)
            lines = []
            continue
        command = line.strip().rstrip(";").strip()
        if not lines and command in {".quit", ".exit", "exit", "quit"}:
            return
        if not lines and command == ".schema":
            yield command
            continue
        if line.strip() or lines:
            lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
