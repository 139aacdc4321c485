"""The prompts of a configuration: texts, files, and several in a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evalcore.conversion.converted import Notes
from evalcore.conversion.promptfoo.files import (
    PREFIX,
    NotTakenOverError,
    is_code,
    named_files,
    read_text,
    read_value,
)
from evalcore.mistakes.foreign_text import one_line

_FILE: Final = re.compile(r"^[\w./*\\ -]+\.(?:txt|md|json|jsonl|ya?ml|csv|j2|py|js|ts|mjs|cjs)$")
_DEFAULT: Final = "{{prompt}}"
_PROGRAM: Final = "exec:"
_BETWEEN: Final = "---"
_KEYS: Final = {"id", "label", "display", "raw"}


class Prompt(NamedTuple):
    """A prompt: its template, and what a person calls it (None: its number)."""

    raw: str
    label: str | None = None


def read_prompts(written: Any, folder: Path, notes: Notes) -> list[Prompt]:
    """Return the prompts in their order; those that programs write are noted."""
    if written is None:
        return [Prompt(_DEFAULT)]
    if isinstance(written, Mapping):
        entries: list[Any] = [{"id": name, "label": label} for name, label in written.items()]
    else:
        entries = written if isinstance(written, list) else [written]
    prompts: list[Prompt] = []
    for index, entry in enumerate(entries):
        position = f"prompts[{index}]"
        try:
            prompts.extend(_prompts_of(entry, folder))
            for key in entry.keys() - _KEYS if isinstance(entry, Mapping) else ():
                notes.add(f"'{key}' of a prompt is not taken over", position)
        except NotTakenOverError as error:
            notes.add(f"the prompt is left out: {error}", position)
    return prompts


def _prompts_of(entry: Any, folder: Path) -> Iterator[Prompt]:
    label = None
    if isinstance(entry, Mapping):
        label = entry.get("label") or entry.get("display")
        label = None if label is None else one_line(str(label))
        entry = entry.get("raw") or entry.get("id")
    if not isinstance(entry, str):
        raise NotTakenOverError("it is neither a text nor a file")
    if entry.startswith(_PROGRAM):
        raise NotTakenOverError(f"{entry} is a program")
    # What looks like a file's name and is none is a text.
    is_file = entry.startswith(PREFIX) or (
        _FILE.match(entry) is not None and (is_code(entry) or bool(list(_existing(folder, entry))))
    )
    if not is_file:
        if "://" in entry[:20] and " " not in entry:
            raise NotTakenOverError(f"{entry} is kept elsewhere")
        yield Prompt(entry, label)
        return
    for path in named_files(folder, entry):
        if path.suffix.lower() == ".csv":
            yield from _rows(path, label)
            continue
        for text in _texts(path):
            yield Prompt(text, label)


def _existing(folder: Path, name: str) -> Iterator[Path]:
    try:
        yield from named_files(folder, name)
    except (NotTakenOverError, ValueError):
        return


def _rows(path: Path, label: str | None) -> Iterator[Prompt]:
    """Yield the prompts of a table: of the column `prompt`, or of its lines if it has one column.

    The column `label` goes before the label of the table.
    """
    text = read_text(path)
    if "," in text:
        for row in read_value(path):
            if row.get("prompt"):
                yield Prompt(row["prompt"], row.get("label") or label)
        return
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    has_head = lines[:1] and lines[0].strip().lower() == "prompt"
    yield from (Prompt(line, label) for line in lines[1 if has_head else 0 :])


def _texts(path: Path) -> Iterator[str]:
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        yield orjson.dumps(read_value(path)).decode()
    elif suffix == ".jsonl":
        yield from (orjson.dumps(line).decode() for line in read_value(path))
    elif suffix == ".txt":
        lines: list[str] = []
        for line in [*read_text(path).replace("\r\n", "\n").split("\n"), _BETWEEN]:
            if line.strip() != _BETWEEN:
                lines.append(line)
                continue
            if "\n".join(lines).strip():
                yield "\n".join(lines).strip()
            lines = []
    else:
        yield read_text(path)
