"""Suites that `evalcore import` makes of the files in tests/unit/importers/files."""

from __future__ import annotations

import shutil
from pathlib import Path

from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.importers.converted import Notes, suite_text
from evalcore.importers.files import read_foreign_file
from evalcore.importers.registry import ImportOptions, convert, recognise_source

FILES = Path(__file__).parents[1] / "unit" / "importers" / "files"


def converted(
    source: str | None,
    name: str | Path,
    folder: Path,
    *,
    check: str | None = None,
    target: str | None = None,
) -> tuple[Path, tuple[str, ...]]:
    """Write the suite of a file to the folder, load it, and return its path and the notes.

    `source` is the folder of FILES that holds the file; it is copied. Without one the file itself
    is named.
    """
    if source is not None:
        shutil.copytree(FILES / source.replace("-", "_"), folder, dirs_exist_ok=True)
    file = read_foreign_file(folder / name)
    recognised = recognise_source(file)
    assert source in (None, recognised)
    notes = Notes()
    stem = file.path.stem
    suite = convert(file, recognised, ImportOptions(stem, check), notes)
    path, module = folder / f"{stem}.eval.yaml", f"{stem}_checks"
    text = suite_text(suite, origin=str(name), module=module, target=target, notes=notes.lines)
    path.write_text(text, "utf-8")
    if suite.module is not None:
        (folder / f"{module}.py").write_text(suite.module, "utf-8")
    load_suite(path, LoadOptions(secrets_required=False))
    return path, notes.lines


def written(source: str, name: str, folder: Path, **options: str) -> Path:
    """Return the path of the suite of a file; see `converted`."""
    return converted(source, name, folder, **options)[0]
