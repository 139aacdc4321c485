"""The targets of a test file: inline, or in the nearest `targets.yaml` upward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalcore.errors import UsageError
from evalcore.formats.environment import Variables, interpolate
from evalcore.formats.problems import Problems
from evalcore.formats.shapes import adapter
from evalcore.formats.source import Loc, read_document
from evalcore.formats.test_file_shapes import TargetShape
from evalcore.model.target import Target
from evalcore.targets.registry import options_model

FILE_NAMES = ("targets.yaml", "targets.yml")


def read_targets(
    inline: list[Any] | None, folder: Path, variables: Variables, problems: Problems
) -> dict[str, Target]:
    """Return the targets by name; inline ones win over the file's of the same name.

    A target of a kind that this version does not have is a mistake only for the suite that names
    it, so those of `targets.yaml` are kept unchecked (`unchecked_reason` says why).
    """
    targets: dict[str, Target] = {}
    path = _nearest(folder)
    if path is not None:
        document = read_document(path)
        raw = document.value
        listed = raw.get("targets") if isinstance(raw, dict) else raw
        found = Problems(document.file, document.locate)
        prefix: Loc = ("targets",) if isinstance(raw, dict) else ()
        _read_list(listed, prefix, variables, found, targets)
        found.raise_if_any()
    _read_list(inline or [], ("targets",), variables, problems, targets)
    return targets


def _nearest(folder: Path) -> Path | None:
    for parent in (folder.resolve(), *folder.resolve().parents):
        for name in FILE_NAMES:
            if (parent / name).is_file():
                return parent / name
    return None


def _read_list(
    raw: object, prefix: Loc, variables: Variables, problems: Problems, targets: dict[str, Target]
) -> None:
    if not isinstance(raw, list):
        problems.add(prefix, "expected a list of targets, each with 'name' and 'provider'")
        return
    for index, written in enumerate(raw):
        loc = (*prefix, index)
        entry = interpolate(written, variables, loc, problems)
        try:
            adapter(TargetShape).validate_python(entry)
        except ValidationError as error:
            problems.add_invalid(error, entry, TargetShape, loc)
            continue
        options = {key: value for key, value in entry.items() if key not in {"name", "provider"}}
        targets[entry["name"]] = Target(entry["name"], entry["provider"], options)


def check_target(target: Target, loc: Loc, problems: Problems) -> None:
    """Note a kind that is unknown, or options that do not fit it."""
    try:
        model = options_model(target.kind)
        model.model_validate(dict(target.options))
    except UsageError as error:
        problems.add(loc, f"target '{target.name}': {error}")
    except ValidationError as error:
        for found in error.errors(include_url=False):
            where = ".".join(str(part) for part in found["loc"])
            problems.add(loc, f"target '{target.name}': {where}: {found['msg']}")
