"""The YAML file beside a file of tests that holds its suite level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evalcore.formats.json_schema import without_notes
from evalcore.formats.parts.raw_test import TESTS_KEYS
from evalcore.formats.parts.test_sources import names_path
from evalcore.formats.text.documents import Document, read_document
from evalcore.mistakes.wording import shown_path
from evalcore.model.suite import Format
from evalcore.trust.files import place_inside

_OTHER_KEYS: Final = ("eval", "workflow", "cases", "suites")


def defaults_beside(path: Path) -> Document | None:
    """Return the YAML file of the same base name, unless it is a suite of other tests.

    One whose `tests` name this very file holds its defaults as well.
    """
    base = path.stem.removesuffix(".eval")
    for name in (f"{base}.eval.yaml", f"{base}.eval.yml", f"{base}.yaml", f"{base}.yml"):
        if (path.parent / name).is_file():
            beside = place_inside(path.parent, name, "file")
            document = read_document(beside, shown_path(path.resolve().parent / name))
            raw = document.value
            if isinstance(raw, dict) and (
                not any(key in raw for key in (*TESTS_KEYS, *_OTHER_KEYS)) or _names_file(raw, path)
            ):
                return replace(document, value=without_notes(Format.TEST_FILE, raw))
    return None


def _names_file(raw: Mapping[str, Any], path: Path) -> bool:
    """Whether the `tests` of a suite file are, perhaps among others, the file at `path`."""
    if any(key in raw for key in _OTHER_KEYS):
        return False
    keys = [key for key in TESTS_KEYS if key in raw]
    named = raw[keys[0]] if len(keys) == 1 else None
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list):
        return False
    return any(names_path(name, path) for name in names if isinstance(name, str))
