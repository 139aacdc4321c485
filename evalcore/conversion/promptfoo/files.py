"""Files that a configuration names: `file://…`, relative to its folder."""

from __future__ import annotations

from collections.abc import Iterator
from glob import has_magic
from pathlib import Path
from typing import Any, Final

from evalcore.conversion.foreign_file import json_lines, parse_json, read_csv
from evalcore.errors import LoadError
from evalcore.formats.text.documents import decode, parse_document, read_bytes
from evalcore.mistakes.foreign_text import one_line

_LONGEST_NAME: Final = 80
PREFIX: Final = "file://"
_CODE: Final = (".js", ".ts", ".mjs", ".cjs", ".mts", ".cts", ".py", ".rb", ".go")


class NotTakenOverError(Exception):
    """A reference leads to something that has no counterpart; the message says what."""


def is_reference(value: Any) -> bool:
    """Whether a value names a file."""
    return isinstance(value, str) and value.startswith(PREFIX)


def python_reference(value: str) -> tuple[str, str | None] | None:
    """Return the file and the function of `[file://]PATH.py[:FUNCTION]`, None if it is none."""
    text = value.removeprefix(PREFIX)
    path, _, function = text.partition(".py")
    if not text.startswith(path + ".py") or (function and not function.startswith(":")):
        return None
    return f"{path}.py", function[1:] or None


def is_code(value: str) -> bool:
    """Whether a reference leads to a program."""
    name = value.removeprefix(PREFIX)
    return any(name.endswith(suffix) or f"{suffix}:" in name for suffix in _CODE)


def named_files(folder: Path, value: str) -> Iterator[Path]:
    """Yield the files that a path or a glob names; raise `NotTakenOverError` if there is none."""
    name = value.removeprefix(PREFIX)
    if is_code(value):
        raise NotTakenOverError(f"{name} is a program")
    is_glob = has_magic(name) and not Path(name).is_absolute()
    try:
        paths = sorted(folder.glob(name)) if is_glob else [folder / name]
        files = [path for path in paths if path.is_file()]
    except (OSError, ValueError):  # a text that is too long for a name, or no glob
        files = []
    if not files:
        raise NotTakenOverError(f"{one_line(name, _LONGEST_NAME)}: no such file")
    yield from files


def read_value(path: Path) -> Any:
    """Return what a file holds: a document, rows, or its text; raise `NotTakenOverError`."""
    name, suffix = str(path), path.suffix.lower()
    try:
        if suffix == ".csv":
            return [{key: cell or "" for key, cell in row.items()} for row in read_csv(path)]
        data = read_bytes(path, name)
        if suffix in (".yaml", ".yml"):
            return parse_document(data, name).value
        replaced: list[str] = []
        if suffix == ".json":
            value = parse_json(data, name, replaced)
        elif suffix == ".jsonl":
            value = list(json_lines(data, name, replaced))
        else:
            value = decode(data, name)
    except LoadError as error:
        raise NotTakenOverError(str(error)) from error
    if replaced:
        raise NotTakenOverError(f"{path.name} has half a character (a lone surrogate) in a text")
    return value


def read_text(path: Path) -> str:
    """Return a file's text; raise `NotTakenOverError` if it is none."""
    try:
        return decode(read_bytes(path, str(path)), str(path))
    except LoadError as error:
        raise NotTakenOverError(str(error)) from error


def resolved_refs(value: Any, root: Any, depth: int = 0) -> Any:
    """Return a value with each `{$ref: '#/…'}` replaced by what stands there."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/") and depth < 20:
            target = root
            for step in reference[2:].split("/"):
                target = target.get(step) if isinstance(target, dict) else None
            return resolved_refs(target, root, depth + 1)
        return {key: resolved_refs(member, root, depth) for key, member in value.items()}
    if isinstance(value, list):
        return [resolved_refs(member, root, depth) for member in value]
    return value
