"""The targets of a test file: inline, or in the nearest `targets.yaml` upward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from evalcore.errors import UsageError
from evalcore.formats.environment import Variables, interpolate
from evalcore.formats.positions import Loc
from evalcore.formats.problems import Problems
from evalcore.formats.shapes import adapter
from evalcore.formats.source import as_json, read_document
from evalcore.formats.test_file_shapes import TargetShape
from evalcore.formats.wording import shown_path, suggest
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.targets.registry import merge_options, options_model

FILE_NAMES = ("targets.yaml", "targets.yml")
_OWN_KEYS = {"name", "provider"}


class _Written(NamedTuple):
    """A target as it is written, and where; `done` says that its variables stand in it."""

    entry: Mapping[str, Any]
    problems: Problems
    loc: Loc
    done: bool


class Targets:
    """The targets that a suite may name; those of the suite win over the file's of the same name.

    A suite may share its `targets.yaml` with others, so a target's variables are read, and its
    options checked, only when the suite names it (`use`). Mistakes are noted where they stand: in
    the suite, or in `file_problems`, the collector of the `targets.yaml`.
    """

    def __init__(
        self, inline: object, folder: Path, variables: Variables, problems: Problems
    ) -> None:
        """Take the suite's own targets (None if it has none), their variables already read."""
        self.used: dict[str, Target] = {}
        self.sound: set[str] = set()
        self.file_problems: Problems | None = None
        self._variables = variables
        self._written: dict[str, _Written] = {}
        # What may be defined in what cannot be read is not missed a second time.
        self.complete = True
        path = _nearest(folder)
        if path is not None:
            document = read_document(path, shown_path(path))
            raw = document.value
            self.file_problems = Problems(document.file, document.locate)
            nested = isinstance(raw, dict) and "targets" in raw
            listed = raw["targets"] if nested else raw
            self._read(listed, ("targets",) if nested else (), self.file_problems, done=False)
        if inline is not None:
            self._read(inline, ("targets",), problems, done=True)

    def __contains__(self, name: str) -> bool:
        return name in self._written

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all targets, used or not."""
        return tuple(self._written)

    def use(self, name: str, loc: Loc, problems: Problems) -> None:
        """Note at `loc` that no target has this name, or where it is defined what is wrong."""
        if name in self.used:
            return
        written = self._written.get(name)
        if written is not None:
            found, place = written.problems, written.loc
            entry = written.entry
            if not written.done:
                entry = interpolate(entry, self._variables, place, found)
            options = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
            self.used[name] = target = Target(name, entry["provider"], as_json(options))
            before = found.count
            _check_options(target, DEFAULT_VARIANT, place, found)
            if found.count == before:
                self.sound.add(name)
        elif self.complete and self._written:
            problems.add(loc, f"unknown target '{name}'.{suggest(name, self._written)}")
        elif self.complete:
            hint = "define it under 'targets:' or in a targets.yaml"
            problems.add(loc, f"unknown target '{name}': none is defined; {hint}")

    def use_variant(self, name: str, variant: Variant, loc: Loc, problems: Problems) -> None:
        """Note at `loc` that the variant's configuration does not fit the target of this name."""
        if name in self.sound:
            _check_options(self.used[name], variant, loc, problems)

    def _read(self, raw: object, prefix: Loc, problems: Problems, *, done: bool) -> None:
        if not isinstance(raw, list):
            problems.add(prefix, "expected a list of targets, each with 'name' and 'provider'")
            self.complete = False
            return
        first: dict[str, Loc] = {}
        for index, entry in enumerate(raw):
            loc = (*prefix, index)
            try:
                adapter(TargetShape).validate_python(entry)
            except ValidationError as error:
                problems.add_invalid(error, entry, TargetShape, loc)
                self.complete = False
                continue
            name = entry["name"]
            if name in first:
                line = problems.locate(first[name])
                problems.add((*loc, "name"), f"duplicate target '{name}' (first at line {line})")
            first.setdefault(name, loc)
            self._written[name] = _Written(entry, problems, loc, done)


def _check_options(target: Target, variant: Variant, loc: Loc, problems: Problems) -> None:
    label = f"target '{target.name}'"
    try:
        model = options_model(target.kind)
    except UsageError as error:
        problems.add((*loc, "provider"), str(error), label=label)
        return
    try:
        merge_options(target, variant)
    except ValidationError as error:
        merged = {**target.options, **variant.config}
        problems.add_invalid(error, merged, model, loc, label=label)


def _nearest(folder: Path) -> Path | None:
    for parent in (folder.resolve(), *folder.resolve().parents):
        for name in FILE_NAMES:
            if (parent / name).is_file():
                return parent / name
    return None
