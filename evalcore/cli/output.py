"""What commands print and write: JSON, lines for people, reports, files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.options import REPORT_FORMS, ROW_FORMS, kind_of
from evalcore.errors import UsageError
from evalcore.report.document import on_one_line
from evalcore.report.registry import FORMS, find_form
from evalcore.trust.text import sanitize_terminal

if TYPE_CHECKING:
    from evalcore.pipeline.finish import RunView
    from evalcore.report.view import ReportView
    from evalcore.storage.store import ObjectStore

# Of a step's summary GitHub takes 1 MiB and drops all of it if there is more.
_SUMMARY_BYTES: Final = 1024 * 1024
_SUMMARY_CUT: Final = "\n\n… the rest of this summary is left out: it holds 1 MiB.\n".encode()
_NARROWEST: Final = 60


def emit(value: Any, as_json: bool, lines: Iterable[str], *, none: str = "") -> None:
    """Print a value as one line of JSON, else the lines for people.

    `none` goes to standard error where there is no line.
    """
    if as_json:
        click.echo(on_one_line(orjson.dumps(value).decode()))
        return
    line = None
    for line in lines:
        say(line)
    if line is None and none:
        click.echo(none, err=True)


def say(text: str, *, err: bool = False) -> None:
    """Print one line, safe for a terminal."""
    click.echo(one_line(text), err=err)


def warn(message: str) -> None:
    """Print a warning, which decides nothing, to standard error."""
    say(f"Warning: {message}", err=True)


def one_line(text: str) -> str:
    """Return foreign text for one line of a terminal or of a log that reads commands."""
    return sanitize_terminal(text).replace("\n", "\\n").replace("\t", " ")


def present(view: RunView) -> ReportView:
    """Return the view as forms read it; files are named from the repository's folder in a build."""
    view.root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    return view


def store_reports(view: RunView, forms: tuple[str, ...]) -> None:
    """Write each form beside `report.json`; `github` also where a build on GitHub reads it."""
    for form in forms:
        text = "".join(find_form(form)(present(view)))
        view.run.store.put(f"{view.run.keys.folder}report.{FORMS[form].suffix}", text.encode())
        if form != "github":
            continue
        if os.environ.get("GITHUB_ACTIONS") == "true":
            # Standard output holds the report and nothing else; a build reads both.
            click.echo(text, err=True, nl=False)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                _append_summary(Path(summary), "".join(find_form("markdown")(present(view))))
            except OSError as error:  # the decision of the run stands
                warn(f"GITHUB_STEP_SUMMARY: {error}")


def _append_summary(path: Path, text: str) -> None:
    """Append Markdown to a step's summary, as much of it as there is room for."""
    with path.open("ab") as file:
        data, room = text.encode(), _SUMMARY_BYTES - file.tell()
        if len(data) > room:
            beginning = data[: max(0, room - len(_SUMMARY_CUT))]
            data = beginning and beginning[: beginning.rfind(b"\n") + 1] + _SUMMARY_CUT
        file.write(data)


def print_terminal(view: RunView, *, verbose: bool, err: bool = False) -> None:
    """Print the report for people to standard output: every case, or what failed first.

    With `err` it goes to standard error.
    """
    from evalcore.report.terminal import (
        DEFAULT_WIDTH,
        SHOWN_FAILURES,
        Style,
        render_terminal,
        render_verbose,
    )

    on_terminal = (sys.stderr if err else sys.stdout).isatty()
    columns = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    style = Style(one_line, max(_NARROWEST, columns) if on_terminal else DEFAULT_WIDTH)
    if verbose:
        lines = render_verbose(present(view), style)
    else:
        lines = render_terminal(present(view), style, most=SHOWN_FAILURES)
    for colour, line in lines:
        click.echo(click.style(line, fg=colour) if colour and on_terminal else line, err=err)
    click.echo(f"run {view.report.run.id} in {sanitize_terminal(view.run.store.url)}", err=err)


def export_view(view: RunView, exports: Sequence[Path], *, append: bool = False) -> None:
    """Write each file, whole or not at all; `append` adds to JSON lines."""
    for path in exports:
        kind = kind_of(path)
        if append and kind == "jsonl":
            view.export("jsonl", path, append=True)
            continue
        with whole_file(path, "--export") as part:
            if kind in ROW_FORMS:
                view.export(kind, part)
            else:
                with part.open("w", encoding="utf-8", newline="") as file:
                    file.writelines(find_form(REPORT_FORMS[kind])(present(view)))


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[Path]:
    """Yield a file to write that then replaces `path`; raise `UsageError` if that cannot be.

    What is no regular file, such as a pipe, is written itself.
    """
    is_special = path.exists() and not path.is_file()
    whole = path if is_special else path.resolve()
    part = path if is_special else whole.with_name(f".{whole.name}.{os.getpid()}.part")
    try:
        whole.parent.stat()
        yield part
        part.replace(whole)
    except OSError as error:
        raise UsageError(
            f"{option}: {path} cannot be written: {error.strerror or error}"
        ) from error
    finally:
        if not is_special:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def write_pieces(pieces: Iterable[str | bytes], output: Path | None) -> None:
    """Write the pieces one after the other to a file, or to standard output without one."""
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    with whole_file(output, "-o") as part, part.open("wb") as file:
        for piece in pieces:
            file.write(piece.encode("utf-8", "replace") if isinstance(piece, str) else piece)
    say(f"wrote {output}", err=True)


@contextmanager
def reserved_stdout() -> Iterator[None]:
    """Let what is written to standard output go to standard error, by Python or below it.

    Programs that are started meanwhile inherit it so.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        descriptor = os.dup(1)
    except OSError:  # closed by the caller: there is nothing to keep
        with redirect_stdout(sys.stderr):
            yield
        return
    try:
        with suppress(OSError):
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        with suppress(OSError, ValueError):
            sys.__stdout__.flush() if sys.__stdout__ is not None else None
        os.dup2(descriptor, 1)
        os.close(descriptor)


def refresh(store: ObjectStore) -> None:
    """Bring the history up to date before it is asked; runs that were left out are warned of."""
    from evalcore.history.sync import sync

    for run_id, reason in sync(store, progress=show_progress("runs")).damaged.items():
        warn(f"{run_id} is damaged and left out: {reason}")


def show_progress(what: str, *, as_json: bool = False) -> Callable[[int, int], None]:
    """Return what shows on a terminal how many are done."""

    def show(done: int, total: int) -> None:
        if not as_json and sys.stderr.isatty():
            click.echo(f"\r{done} of {total} {what}", err=True, nl=done == total)

    return show
