"""`--export FILE`: the option, and which files it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from evalcore.errors import UsageError

EXPORT_HELP = (
    "Write the rows (.jsonl, .csv, .parquet) or the report (.xml, .html) to this file; repeatable."
)
REPORT_FORMS: Final = {"xml": "junit", "html": "html"}
ROW_FORMS: Final = ("jsonl", "csv", "parquet")


def export_option(command: Any) -> Any:
    """Add `--export`; may be given several times."""
    return click.option(
        "--export", "exports", multiple=True, metavar="FILE", callback=_paths, help=EXPORT_HELP
    )(command)


def _paths(_ctx: click.Context, _option: click.Parameter, names: Sequence[str]) -> list[Path]:
    """Return the files; what cannot be written is refused before anything runs."""
    paths = [Path(name) for name in names]
    for path in paths:
        if kind_of(path) not in (*ROW_FORMS, *REPORT_FORMS):
            endings = ", ".join(f".{name}" for name in (*ROW_FORMS, *REPORT_FORMS))
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
