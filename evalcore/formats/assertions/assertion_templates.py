"""Assertions that several suites share: the files that `include:` names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.formats.parts.interpolation import Variables, interpolate
from evalcore.formats.text.documents import read_document
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import shown_path
from evalcore.settings import find_upward, repository_root
from evalcore.trust.files import resolve_inside

DEEPEST_INCLUDE: Final = 3
_FOLDER: Final = ".agentv/templates"
_SUFFIXES: Final = (".yaml", ".yml")


class AssertionTemplate(NamedTuple):
    """What a template lists under `assertions`, and the collector of the mistakes in it."""

    path: Path
    entries: list[Any]
    problems: Problems


def is_include(entry: object) -> bool:
    """Whether an entry of a list of assertions stands for those of a template."""
    return isinstance(entry, dict) and len(entry) == 1 and "include" in entry


class AssertionTemplates:
    """Opens the templates that the assertions of a suite include."""

    def __init__(self, folder: Path, variables: Variables) -> None:
        self._folder = folder.resolve()
        self._variables = variables

    def find(self, name: str, beside: Path | None = None) -> Path:
        """Return the path of a template; raise `EvalError` if there is none in the repository.

        A bare name is `.agentv/templates/NAME.yaml`, the nearest one upward; any other is a path,
        looked for from the folder `beside` and from the suite's, upward.
        """
        folders = [folder for folder in (beside, self._folder) if folder is not None]
        if name.startswith(".") or "/" in name or "\\" in name:
            for folder in folders[:-1]:
                if (folder / name).is_file():
                    return resolve_inside(repository_root(self._folder), folder, name)
            return resolve_inside(repository_root(self._folder), self._folder, name)
        for folder in folders:
            path = find_upward(folder, [f"{_FOLDER}/{name}{suffix}" for suffix in _SUFFIXES]).path
            if path is not None:
                return path
        root = repository_root(self._folder)
        raise UsageError(f"no template '{name}': there is no {_FOLDER}/{name}.yaml up to {root}")

    def open(self, path: Path) -> AssertionTemplate:
        """Return what the template at `path` holds; raise `LoadError` if it cannot be read."""
        document = read_document(path, shown_path(path))
        problems = Problems(document.file, document.locate)
        raw = interpolate(document.value, self._variables, (), problems)
        entries = raw.get("assertions") if isinstance(raw, dict) else None
        if not isinstance(entries, list):
            problems.add((), "a template of assertions is a mapping with a list 'assertions'")
            entries = []
        return AssertionTemplate(path, entries, problems)
