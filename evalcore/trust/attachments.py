"""The files that messages attach, and their text for those who cannot open them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from evalcore.errors import EvalError
from evalcore.trust.files import repository_root, resolve_inside

LARGEST_TEXT: Final = 64 << 10
ELSEWHERE: Final = ("http://", "https://", "data:")


def attached_paths(value: Any, folder: Path) -> list[Path]:
    """Return the paths of the files that messages attach, each once, in their order.

    Raise `EvalError` for one that is not there or lies outside the repository of `folder`.
    """
    root = repository_root(folder)
    names = (_name_of(segment) for segment in _segments(value))
    return list(dict.fromkeys(resolve_inside(root, folder, name) for name in names if name))


def with_file_texts(value: Any, folder: Path) -> Any:
    """Return messages with the text of each attached file in the place of its name.

    A file of more than 64 KiB, one that is no UTF-8 text and one that cannot be read stand as
    their names with a note. Images and what is no message stay as they are.
    """
    if not any(_name_of(segment) for segment in _segments(value)):
        return value
    return [
        {**message, "content": [_with_text(segment, folder) for segment in message["content"]]}
        if _has_segments(message)
        else message
        for message in value
    ]


def with_files(messages: list[Any], folder: Path) -> list[Any]:
    """Return messages whose file segments also have `path`, `resolved_path` and `text`.

    `text` is there for a file that `with_file_texts` shows, the paths for one that is there.
    """
    if not any(_name_of(segment) for segment in _segments(messages)):
        return messages
    return [
        {**message, "content": [_with_path(segment, folder) for segment in message["content"]]}
        if _has_segments(message)
        else message
        for message in messages
    ]


def _segments(value: Any) -> Iterator[Mapping[str, Any]]:
    for message in value if isinstance(value, list | tuple) else ():
        if _has_segments(message):
            yield from (part for part in message["content"] if isinstance(part, Mapping))


def _has_segments(message: Any) -> bool:
    return isinstance(message, Mapping) and isinstance(message.get("content"), list | tuple)


def _name_of(segment: Mapping[str, Any]) -> str | None:
    """Return the name of the file that a segment attaches; None if it attaches none."""
    name = segment.get("value")
    if segment.get("type") != "file" or not isinstance(name, str) or name.startswith(ELSEWHERE):
        return None
    return name.removeprefix("file://")


def _with_path(segment: Any, folder: Path) -> Any:
    name = _name_of(segment) if isinstance(segment, Mapping) else None
    if not name:
        return segment
    try:
        path = resolve_inside(repository_root(folder), folder, name)
        located = {**segment, "path": name, "resolved_path": str(path)}
        return {**located, "text": path.read_text("utf-8-sig")} if _is_short(path) else located
    except UnicodeDecodeError:
        return located
    except (EvalError, OSError):  # removed since the suite was loaded
        return segment


def _with_text(segment: Any, folder: Path) -> Any:
    name = _name_of(segment) if isinstance(segment, Mapping) else None
    if not name:
        return segment
    try:
        path = resolve_inside(repository_root(folder), folder, name)
        note = f"{path.stat().st_size:,} bytes"
        if not _is_short(path):
            return _text(f"[file: {name}, {note}: too large to be shown here]")
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        return _text(f"[file: {name}, {note}: no text]")
    except (EvalError, OSError) as error:
        return _text(f"[file: {name}: {error}]")
    return _text(f'<file name="{name}">\n{text}\n</file>')


def _is_short(path: Path) -> bool:
    return path.stat().st_size <= LARGEST_TEXT


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "value": text}
