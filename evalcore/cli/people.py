"""`evalcore annotate`, `annotations`, `judge`: labels of people, and how judges agree with them."""

from __future__ import annotations

import csv
import getpass
import io
import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.annotations.queue import (
    AnnotationQueue,
    AnnotationTask,
)
from evalcore.annotations.transfer import COLUMNS, LabelImport, export_labels
from evalcore.cli.options import (
    NumberRange,
    RunName,
    chosen_store,
    json_option,
    mode_option,
    run_argument,
    settings,
    store_option,
)
from evalcore.cli.output import emit, say, warn, write_pieces
from evalcore.errors import ExitCode, UsageError
from evalcore.formats.documents import parse_row
from evalcore.formats.rows import CsvRows
from evalcore.judging.prompts import conversation_text
from evalcore.model.mode import Mode
from evalcore.problems import Problems, raise_all
from evalcore.report.document import on_one_line
from evalcore.report.escape import is_formula
from evalcore.storage.run_names import choose_run
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.formats.labels import Label
    from evalcore.suites.calibration import Calibration

_COMMANDS: Final = {"u": "undo", "s": "skip", "q": "quit"}
_COMMENT = " # "


@click.command()
@run_argument
@click.option(
    "--as",
    "annotator",
    metavar="NAME",
    envvar="EVALCORE_ANNOTATOR",
    help="Whose labels they are.  [default: EVALCORE_ANNOTATOR, else the user's name]",
)
@store_option
def annotate(run_id: str, annotator: str | None, store: str | None) -> None:
    """Answer what RUN asks people: input and output, without variant and other people's answers.

    An answer is a label, its number, or a step of the scale; `yes # reason` adds a comment. `s`
    skips, `u` takes back the last label, `q` quits. Answers may be piped in, one a line.
    """
    opened = chosen_store(store)
    name = annotator or getpass.getuser()
    with AnnotationQueue(choose_run(opened, run_id)) as queue:
        session = _Session(queue, name)
        for damage in queue.damaged:
            warn(f"{damage.key} {damage.reason}; it is asked again")
        session.run()
        left = queue.progress
    labels = counted(session.stored, "label")
    say(f"{labels} of {name} stored; {left.missing} missing in the run")
    if not left.missing and left.tasks:
        say(f"evalcore regrade {queue.run_id}  decides with them")


class _Session:
    """Asks one annotator; `stored` counts the labels that stand at the end."""

    def __init__(self, queue: AnnotationQueue, annotator: str) -> None:
        self._queue, self._annotator = queue, annotator
        self._is_terminal = sys.stdin.isatty()
        self._skipped: set[str] = set()
        self.stored = 0

    def run(self) -> None:
        """Ask until nothing is left, the annotator quits, or the input ends."""
        while (task := self._queue.next_task(self._annotator)) is not None:
            if task.id in self._skipped and not self._is_terminal:
                return
            for line in self._lines(task):
                click.echo(sanitize_terminal(line))
            if not self._ask(task):
                return

    def _ask(self, task: AnnotationTask) -> bool:
        """Take one answer; return whether to go on."""
        shown_at = time.monotonic()
        while True:
            click.echo("> ", nl=False)
            line = sys.stdin.readline()
            if not line:
                click.echo()
                return False
            text = line.strip()
            command = _command(task, text)
            if command == "quit":
                return False
            if command == "skip":
                self._skipped.add(task.id)
                self._queue.skip(self._annotator, task)
                return True
            if command == "undo":
                if self._queue.undo(self._annotator, at=_now()) is None:
                    say("there is no label to take back")
                    continue
                self.stored = max(0, self.stored - 1)
                return True
            if self._store(task, text, round(time.monotonic() - shown_at, 3)):
                return True

    def _store(self, task: AnnotationTask, text: str, seconds: float) -> bool:
        answer, _, comment = text.partition(_COMMENT)
        labels, number = task.form.labels, answer.strip()
        if labels is not None and number.isdigit() and number not in labels:
            position = int(number)
            answer = labels[position - 1] if 0 < position <= len(labels) else answer
        try:
            self._queue.answer(
                task, self._annotator, answer, at=_now(), comment=comment.strip(), seconds=seconds
            )
        except UsageError as error:
            # A person can answer again; of a file the next line would answer another question.
            if not self._is_terminal:
                raise
            say(f"{error}; or s, u, q")
            return False
        self.stored += 1
        return True

    def _lines(self, task: AnnotationTask) -> Iterator[str]:
        content, progress = self._queue.content(task), self._queue.progress
        yield f"─── {progress.complete} of {progress.tasks} complete ───"
        yield "Input:"
        yield conversation_text(content.input)
        yield "Output:"
        yield content.output
        yield ""
        yield task.question
        if task.instructions:
            yield task.instructions
        if task.form.labels is None:
            choices = f"a number, {task.form.described}"
        else:
            numbered = enumerate(task.form.labels, start=1)
            choices = ", ".join(f"{number} {label}" for number, label in numbered)
        yield f"[{choices}; s skip, u undo, q quit]"


def _command(task: AnnotationTask, text: str) -> str | None:
    """Return what a line asks for, unless it is one of the labels."""
    if task.form.labels is not None and text in task.form.labels:
        return None
    return _COMMANDS.get(text.lower()) or (text.lower() if text in _COMMANDS.values() else None)


def _now() -> str:
    # To the microsecond: `undo` takes back the last one.
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@click.group("annotations")
def annotations_() -> None:
    """Labels of people: export them, import them."""


@annotations_.command("export")
@run_argument
@click.argument("file", type=click.Path(path_type=Path), required=False, metavar="[FILE]")
@store_option
def export_command(run_id: str, file: Path | None, store: str | None) -> None:
    """Write the labels of RUN as rows: JSON lines, or CSV to a FILE that ends in .csv."""
    opened = chosen_store(store)
    with AnnotationQueue(choose_run(opened, run_id)) as queue:
        rows = list(export_labels(queue))
    is_csv = file is not None and _is_csv(file)
    write_pieces((_csv_text(rows),) if is_csv else map(_json_line, rows), file)


@annotations_.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@store_option
@json_option
def import_command(file: Path, store: str | None, as_json: bool) -> None:
    """Store the labels of FILE: JSON lines (`-`: from standard input), or CSV if it ends in .csv.

    A row has `run`, `case`, `variant`, `iteration`, `assertion`, `label`, `annotator`, `comment`,
    `at`; `variant`, `iteration`, `comment` and `at` may be missing. If a row is wrong nothing is
    stored. Labels that are stored already are not stored again.
    """
    name = "standard input" if str(file) == "-" else str(file)
    collectors: list[Problems] = []
    with LabelImport(chosen_store(store), now=datetime.now(UTC)) as labels:
        rows = _csv_rows(file, collectors) if _is_csv(file) else _lines(file)
        for line, row in rows:
            problems = Problems(name, lambda _, line=line: line)  # type: ignore[misc]
            collectors.append(problems)
            if isinstance(row, ValueError):
                problems.add((), f"not valid JSON: {row}")
            else:
                labels.add(row, problems)
        raise_all(tuple(collectors))
        done = labels.store_labels()
    text = f"{counted(done.stored, 'label')} stored, {done.unchanged} were stored already"
    if done.outdated:
        text += f", {done.outdated} are older than what is stored"
    emit(done._asdict(), as_json, (text,))


def _is_csv(file: Path) -> bool:
    return file.suffix.lower() == ".csv"


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
    if not file.exists() or file.is_dir():
        raise UsageError(f"{file}: there is no such file")
    rows = CsvRows(file, str(file))
    problems = Problems(str(file), lambda _: rows.line)
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


_MAX_LISTED = 20
_SHARE = NumberRange(0, 1)


@click.group()
def judge() -> None:
    """Compare a judge with the labels of people."""


@judge.command("calibrate")
@click.argument("labels", type=click.Path(path_type=Path), required=False)
@click.option(
    "--annotations",
    "run_id",
    type=RunName(),
    metavar="RUN",
    help="Labels of people on RUN's outputs.",
)
@click.option("--question", metavar="NAME", help="Which assertion of people, if RUN has several.")
@click.option("--suite", type=click.Path(path_type=Path), help="Whose judged assertion is asked.")
@click.option("--assertion", metavar="NAME", help="Which of them, if there are several.")
@click.option("--threshold", type=_SHARE, default=0.8, help="The score that passes.  [0.8]")
@click.option("--min-kappa", type=NumberRange(-1, 1), help="Least κ.  [0.6]")
@click.option("--observed", type=_SHARE, help="A pass rate that the judge measured, to correct.")
@mode_option
@store_option
@json_option
def calibrate_(labels: Path | None, as_json: bool, store: str | None, **flags: Any) -> int:
    """Compare a judge with the labels of people: agreement, Cohen's κ, corrected accuracy.

    LABELS is a file of tests (JSONL, CSV, Parquet, YAML) with `output` and `label` (pass or fail).
    With --annotations RUN they are what people said of the outputs of RUN instead.
    Where each row has a `judge`, that verdict is compared and no model is asked. Exit code 1: κ is
    below --min-kappa; 4: the judge gave no verdict on some.
    """
    from evalcore.suites.calibration import MIN_KAPPA, compared

    rows = _labels(labels, store, flags)
    least = MIN_KAPPA if flags["min_kappa"] is None else flags["min_kappa"]
    if flags["suite"] is not None:
        calibration = _ask(rows, store, least, flags)
    elif all(row.judged is not None for row in rows):
        judged = {row.id: row.judged for row in rows}
        calibration = compared(rows, judged, observed=flags["observed"], min_kappa=least)
    else:
        raise UsageError("name the suite that judges: --suite FILE")
    emit(calibration.values(), as_json, _calibration_lines(calibration))
    if calibration.errors:
        return int(ExitCode.ERRORS)
    failed = flags["min_kappa"] is not None and not calibration.calibrated
    return int(ExitCode.GATE_FAILED if failed else ExitCode.PASS)


def _labels(path: Path | None, store: str | None, flags: Mapping[str, Any]) -> list[Label]:
    from evalcore.formats.labels import read_labels
    from evalcore.suites.calibration import annotated_labels

    run_id = flags["run_id"]
    if (path is None) == (run_id is None):
        raise UsageError("name the labels: a file of them, or --annotations RUN")
    if path is not None:
        return read_labels(path, flags["threshold"])
    return annotated_labels(choose_run(chosen_store(store), run_id), flags["question"])


def _ask(
    rows: list[Label], store: str | None, least: float, flags: Mapping[str, Any]
) -> Calibration:

    from evalcore.formats.options import LoadOptions
    from evalcore.formats.registry import load_suite
    from evalcore.isolation.mode import Isolation
    from evalcore.pipeline.session import ExecuteOptions
    from evalcore.suites.calibration import calibrate, judged_assertion
    from evalcore.trust.imports import ImportPolicy

    without = next((row for row in rows if row.output is None), None)
    if without is not None:
        raise UsageError(f"label '{without.id}' has no 'output' to ask a judge about")
    configured = settings()
    options = LoadOptions().configured(configured, os.environ, store)
    suite = load_suite(flags["suite"], options)
    folder = Path(suite.definition.source.folder)
    policy = ImportPolicy(roots=(Path.cwd(), folder), allowed=configured.allow_imports)
    return calibrate(
        suite.definition,
        judged_assertion(suite, flags["assertion"]),
        rows,
        chosen_store(store),
        mode=flags["mode"] or Mode.LIVE,
        execute=ExecuteOptions(
            imports=policy, settings=configured, isolation=Isolation(configured.isolation)
        ),
        observed=flags["observed"],
        min_kappa=least,
    )


def _calibration_lines(calibration: Calibration) -> Iterator[str]:
    values, confusion = calibration.values(), calibration.confusion
    who = ", ".join(calibration.judges)
    yield counted(confusion.n, "label") + (f", judged by {who}" if who else "")
    yield "                 judge: pass  judge: fail"
    yield f"  people: pass   {confusion.true_pass:>11}  {confusion.false_fail:>11}"
    yield f"  people: fail   {confusion.false_pass:>11}  {confusion.true_fail:>11}"
    interval = values["agreement_interval"]
    within = "" if interval is None else f" [{interval['low']:.4f}, {interval['high']:.4f}]"
    yield f"agreement {_rate(values['agreement'])}{within}, Cohen's κ {_rate(values['kappa'])}"
    yield (
        f"sensitivity {_rate(values['sensitivity'])}, specificity {_rate(values['specificity'])}"
    )
    yield (
        f"pass rate {_rate(values['observed_rate'])}, "
        f"corrected {_rate(values['corrected_accuracy'])}"
    )
    for title, listed in (
        ("disagree", calibration.disagreements),
        ("no verdict", calibration.errors),
    ):
        if listed:
            more = len(listed) - _MAX_LISTED
            tail = f" and {more} more" if more > 0 else ""
            yield f"{title}: {', '.join(listed[:_MAX_LISTED])}{tail}"
    word = "CALIBRATED" if calibration.calibrated else "NOT CALIBRATED"
    yield f"{word}: κ {_rate(calibration.kappa)}, at least {calibration.min_kappa:g} is wanted"


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
