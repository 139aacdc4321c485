"""`--export FILE`: a run's rows or its report as a file, of the form that the name's end says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from evalcore.cli.showing import present
from evalcore.errors import UsageError
from evalcore.pipeline import RunView
from evalcore.report.registry import find_form

EXPORT_HELP = "Write the rows (.jsonl, .csv, .parquet) or the report (.xml, .html) to this file."
_FORMS: Final = {"xml": "junit", "html": "html"}
_ROWS: Final = ("jsonl", "csv", "parquet")


def export_option(command: Any) -> Any:
    """Add `--export`; may be given several times."""
    return click.option(
        "--export", "exports", multiple=True, metavar="FILE", callback=_paths, help=EXPORT_HELP
    )(command)


def _paths(_ctx: click.Context, _option: click.Parameter, names: Sequence[str]) -> list[Path]:
    """Return the files; what cannot be written is refused before anything runs."""
    paths = [Path(name) for name in names]
    for path in paths:
        if kind_of(path) not in (*_ROWS, *_FORMS):
            endings = ", ".join(f".{name}" for name in (*_ROWS, *_FORMS))
            raise UsageError(f"--export: '{path}' ends in none of {endings}")
        if path.is_dir() or not path.absolute().parent.is_dir():
            reason = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UsageError(f"--export: {path}: {reason}")
    return paths


def kind_of(path: Path) -> str:
    """Return what a file's name ends in, without the dot."""
    return path.suffix.lower().removeprefix(".")


def check_exports(exports: Sequence[Path], suites: int) -> None:
    """Raise `UsageError` for a file that cannot hold several suites."""
    for path in exports:
        if suites > 1 and kind_of(path) != "jsonl":
            raise UsageError(f"--export: {path}: of several suites only .jsonl holds the rows")


def export_view(view: RunView, exports: Sequence[Path], *, append: bool = False) -> None:
    """Write each file, whole or not at all; `append` adds to JSON lines."""
    for path in exports:
        if append and kind_of(path) == "jsonl":
            view.export("jsonl", path, append=True)
            continue
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            _write(view, kind_of(path), part)
            part.replace(path)
        except OSError as error:
            raise UsageError(f"--export: {path}: {error.strerror or error}") from error
        finally:
            part.unlink(missing_ok=True)


def _write(view: RunView, kind: str, path: Path) -> None:
    if kind in _ROWS:
        view.export(kind, path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        for piece in find_form(_FORMS[kind])(present(view)):
            file.write(piece)
