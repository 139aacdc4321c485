"""Write the files of `--export`: rows or a report, in the form that a name's ending says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.cli.export_files import REPORT_FORMS, ROW_FORMS, kind_of
from evalcore.cli.showing import present
from evalcore.errors import UsageError
from evalcore.report.registry import find_form

if TYPE_CHECKING:
    from evalcore.pipeline.finish import RunView


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
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _write(view: RunView, kind: str, path: Path) -> None:
    if kind in ROW_FORMS:
        view.export(kind, path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        for piece in find_form(REPORT_FORMS[kind])(present(view)):
            file.write(piece)
