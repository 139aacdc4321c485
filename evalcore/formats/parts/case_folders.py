"""Tests that are folders: each holds a `case.yaml`, and perhaps the template of its workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from evalcore.errors import LoadError
from evalcore.formats.parts.raw_test import NO_TEST, RawTest
from evalcore.formats.text.documents import read_document
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import shown_path
from evalcore.trust.files import resolve_folder

CASE_FILES: Final = ("case.yaml", "case.yml")
_TEMPLATE: Final = "workspace"


def case_folders(
    root: Path, folder: Path, name: str, loc: Loc, problems: Problems
) -> Iterator[RawTest]:
    """Yield the test of each subfolder of `name` that holds a `case.yaml`, in order of the names.

    A test without `id` has the subfolder's name. A subfolder `workspace` is the template of a test
    that says nothing else of its workspace. Raises `EvalError` if the folder is not there.
    """
    parent = resolve_folder(root, folder, name)
    cases = [
        path
        for subfolder in sorted(parent.iterdir())
        if (path := _case_file(subfolder)) is not None and path.resolve().is_relative_to(root)
    ]
    if not cases:
        problems.add(loc, f"no folder in '{name}' holds a {CASE_FILES[0]}")
    for path in cases:
        try:
            document = read_document(path, shown_path(path))
        except LoadError as error:
            problems.include(error.problems)
            continue
        in_file = Problems(document.file, document.locate)
        yield RawTest(NO_TEST, (), in_file)
        yield RawTest(_completed(document.value, path.parent, folder), (), in_file)


def _case_file(folder: Path) -> Path | None:
    names = CASE_FILES if folder.is_dir() else ()
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _completed(value: Any, case_folder: Path, folder: Path) -> Any:
    """Return a test with what its folder says: its id, and its workspace's template."""
    if not isinstance(value, dict):
        return value
    test = {"id": case_folder.name, **value}
    template = case_folder / _TEMPLATE
    if "workspace" not in test and template.is_dir():
        test["workspace"] = {"template": os.path.relpath(template, folder.resolve())}
    return test
