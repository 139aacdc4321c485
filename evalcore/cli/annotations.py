"""`evalcore annotations`: labels of people as rows, and how well annotators agree."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import Any, Final

import click
import orjson

from evalcore.annotations.exchange import COLUMNS, LabelImport, export_labels
from evalcore.annotations.queue import awaiting
from evalcore.annotations.reliability import labelled_contents, question_agreements
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import UsageError
from evalcore.formats.documents import parse_row
from evalcore.formats.rows import CsvRows
from evalcore.problems import Problems, raise_all
from evalcore.report.document import on_one_line
from evalcore.report.escape import is_formula
from evalcore.storage.run_names import choose_run
from evalcore.wording import counted

_FORMS: Final = ("jsonl", "csv")


@click.group("annotations")
def annotations_() -> None:
    """Labels of people: export them, import them, see how annotators agree."""


@annotations_.command("export")
@click.argument("run_id", metavar="RUN")
@click.argument("file", type=click.Path(path_type=Path), required=False, metavar="[FILE]")
@click.option("--format", "form", type=click.Choice(_FORMS), help="[default: FILE's, else jsonl]")
@store_option
def export_command(run_id: str, file: Path | None, form: str | None, store: str | None) -> None:
    """Write the labels of RUN as rows: JSON lines or CSV, to FILE or standard output."""
    opened = chosen_store(store)
    form = form or _form_of(file)
    with awaiting(opened, choose_run(opened, run_id)) as queue:
        rows = list(export_labels(queue))
    text = _csv_text(rows) if form == "csv" else "".join(map(_json_line, rows))
    if file is None:
        click.echo(text, nl=False)
        return
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    click.echo(one_line(f"{counted(len(rows), 'label')} in {file}"))


@annotations_.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(_FORMS), help="[default: that of FILE's name]")
@store_option
@json_option
def import_command(file: Path, form: str | None, store: str | None, as_json: bool) -> None:
    """Store the labels of FILE (`-`: standard input), JSON lines or CSV.

    A row has `run`, `case`, `variant`, `iteration`, `assertion`, `label`, `annotator`, `comment`,
    `at`; `variant`, `iteration`, `comment` and `at` may be missing. If a row is wrong nothing is
    stored. Labels that are stored already are not stored again.
    """
    name = "standard input" if str(file) == "-" else str(file)
    collectors: list[Problems] = []
    with LabelImport(chosen_store(store), now=datetime.now(UTC)) as labels:
        rows = _csv_rows(file, collectors) if (form or _form_of(file)) == "csv" else _lines(file)
        for line, row in rows:
            problems = Problems(name, lambda _, line=line: line)  # type: ignore[misc]
            collectors.append(problems)
            if isinstance(row, ValueError):
                problems.add((), f"not valid JSON: {row}")
            else:
                labels.add(row, problems)
        raise_all(tuple(collectors))
        done = labels.store_labels()
    if as_json:
        click.echo(on_one_line(orjson.dumps(done._asdict()).decode()))
        return
    click.echo(
        f"{counted(done.stored, 'label')} stored, {done.unchanged} were stored already"
        + (f", {done.outdated} are older than what is stored" if done.outdated else "")
    )


@annotations_.command("agreement")
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def agreement_command(run_id: str, store: str | None, as_json: bool) -> None:
    """Show how well annotators of RUN agree: Cohen's κ of two, Krippendorff's α of more."""
    opened = chosen_store(store)
    with awaiting(opened, choose_run(opened, run_id)) as queue:
        agreements = question_agreements(labelled_contents(queue))
    if as_json:
        values = [asdict(agreement) for agreement in agreements]
        click.echo(on_one_line(orjson.dumps(values).decode()))
        return
    for agreement in agreements:
        click.echo(one_line(agreement.message))
    if not agreements:
        click.echo("no output of the run has labels of two annotators")


def _form_of(file: Path | None) -> str:
    return "csv" if file is not None and file.suffix.lower() == ".csv" else "jsonl"


def _lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield each JSON line with its number; in the place of one that is no JSON the error."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            try:
                yield number, parse_row(line).value
            except ValueError as error:
                yield number, error


def _csv_rows(file: Path, collectors: list[Problems]) -> Iterator[tuple[int, Any]]:
    if str(file) == "-":
        # A table is read twice, which a pipe cannot be.
        with NamedTemporaryFile(suffix=".csv") as copy:
            copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
            yield from _rows_of_table(Path(copy.name), "standard input", collectors)
        return
    if not file.exists() or file.is_dir():
        raise UsageError(f"{file}: there is no such file")
    yield from _rows_of_table(file, str(file), collectors)


def _rows_of_table(path: Path, name: str, collectors: list[Problems]) -> Iterator[tuple[int, Any]]:
    rows = CsvRows(path, name)
    problems = Problems(name, lambda _: rows.line)
    collectors.append(problems)
    for row in rows.read(problems):
        yield rows.line, {name: _cell(name, cell) for name, cell in row.items()}


def _cell(column: str, cell: str | None) -> Any:
    if cell is None:
        return None
    if cell.startswith("'") and _is_escaped(cell[1:]):
        cell = cell[1:]
    if column == "iteration" and cell.isdecimal():
        return int(cell)
    return cell


def _csv_text(rows: list[dict[str, Any]]) -> str:
    output = io.StringIO()
    writer = csv.DictWriter(output, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _escaped(value) for name, value in row.items()})
    return output.getvalue()


def _escaped(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _is_escaped(value) else value


def _is_escaped(text: str) -> bool:
    """Whether a text stands behind an apostrophe: what a spreadsheet would calculate, or one."""
    return text.startswith("'") or is_formula(text)


def _json_line(row: dict[str, Any]) -> str:
    return on_one_line(orjson.dumps(row).decode()) + "\n"
