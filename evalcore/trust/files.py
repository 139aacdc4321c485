"""The files that a suite names: where they are looked for, and what lies out of its reach.

Unlike `glob.glob`, patterns list nothing outside the root, and `**` follows no symbolic link: a
suite may name `**/*.yaml` beside a link to `/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Final

from evalcore.errors import EvalError, NotAllowedError, UsageError
from evalcore.settings import ancestors_within, repository_root

__all__ = ["place_inside", "repository_root", "resolve_folder", "resolve_inside"]

_RULE = "a suite may read only what lies below that folder"


def resolve_inside(root: Path, folder: Path, name: str) -> Path:
    """Return the resolved path of the file `name`, looked for from `folder` upward to `root`.

    The nearest one wins. Raise `NotAllowedError` if the name or a symbolic link leads outside
    `root`, `UsageError` with the places where it was looked for if there is none. An absolute name
    that does not lie inside `root` starts at `root`.
    """
    return _resolved(root, folder, name, "file")


def resolve_folder(root: Path, folder: Path, name: str) -> Path:
    """Return the resolved path of a folder that a suite names; else as `resolve_inside`."""
    return _resolved(root, folder, name, "folder")


def place_inside(folder: Path, name: str, kind: str = "folder") -> Path:
    """Return the resolved path of what `folder` / `name` is or will be.

    Raise `NotAllowedError` if it lies outside the repository that holds `folder`, or a symbolic
    link on the way leads out of it.
    """
    root = repository_root(folder)
    try:
        path = (folder / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name!r} is no name of a {kind}: {error}") from error
    if not path.is_relative_to(root):
        raise NotAllowedError(f"{kind} {name!r} lies outside {root}; {_RULE}")
    return path


def _resolved(root: Path, folder: Path, name: str, kind: str) -> Path:
    root, folder = root.resolve(), folder.resolve()
    if not folder.is_relative_to(root):
        raise ValueError(f"{folder} does not lie below {root}")
    candidates: list[Path] = []
    if name.startswith("/") and not Path(os.path.normpath(name)).is_relative_to(root):
        rooted = _entry_at(Path(os.path.normpath(f"{root}/{name.lstrip('/')}")), kind)
        if rooted is not None and rooted.is_relative_to(root):
            return rooted
    for start in ancestors_within(folder, root):
        candidate = Path(os.path.normpath(start / name))
        if not candidate.is_relative_to(root):
            continue
        candidates.append(candidate)
        entry = _entry_at(candidate, kind)
        if entry is None:
            continue
        if not entry.is_relative_to(root):
            message = f"{kind} {name!r} leads outside {root} through a symbolic link"
            raise NotAllowedError(f"{message}; {_RULE}")
        return entry
    if not candidates:
        message = f"{kind} {name!r} lies outside {root}"
        raise NotAllowedError(f"{message}; {_RULE}")
    looked = ", ".join(str(path) for path in dict.fromkeys(candidates))
    raise UsageError(f"there is no {kind} {name!r}; looked for {looked}")


def _entry_at(path: Path, kind: str) -> Path | None:
    try:
        exists = path.is_file() if kind == "file" else path.is_dir()
        return path.resolve() if exists else None
    except (OSError, ValueError):  # a name no file system takes: too long, or with a NUL
        return None


_ANY_DEPTH: Final = "**"
_MAGIC: Final = re.compile(r"[*?[]")


def has_magic(pattern: str) -> bool:
    """Whether a name is a pattern: `*`, `?`, `[…]` or `**` stands in it."""
    return _MAGIC.search(pattern) is not None


def matching_files(pattern: str, folder: Path, root: Path) -> list[str]:
    """Return the names, relative to `folder`, of the files below `root` that match, sorted.

    `*`, `?` and `[…]` match within one name, `**` any number of folders; a name that begins with a
    dot is matched only where the pattern spells the dot. A folder that is a symbolic link is
    entered where a part of the pattern other than `**` matches it and it stays below `root`. Raise
    `NotAllowedError` for a pattern that leads outside `root`.
    """
    folder, root = folder.resolve(), root.resolve()
    parts = PurePath(pattern).parts
    first = next((at for at, part in enumerate(parts) if has_magic(part)), len(parts))
    base = Path(os.path.normpath(folder.joinpath(*parts[:first])))
    if not base.resolve().is_relative_to(root) or ".." in parts[first:]:
        raise NotAllowedError(f"'{pattern}' leads outside {root}; {_RULE}")
    return sorted({os.path.relpath(path, folder) for path in _matches(base, parts[first:], root)})


def _matches(folder: str | Path, parts: Sequence[str], root: Path) -> Iterator[str]:
    """Yield the files below a folder that the parts of a pattern match; some come twice."""
    part, *rest = parts
    if part == _ANY_DEPTH:  # also stands for no folder at all
        yield from _matches(folder, rest or ["*"], root)
    try:
        entries = list(os.scandir(folder))
    except OSError:  # gone meanwhile, or not ours to read
        return
    for entry in entries:
        if entry.name.startswith(".") and not part.startswith("."):
            continue
        if part == _ANY_DEPTH:
            if entry.is_dir(follow_symlinks=False):
                yield from _matches(entry.path, parts, root)
        elif fnmatchcase(entry.name, part):
            if not rest and not entry.is_dir():
                yield entry.path
            elif rest and entry.is_dir() and Path(entry.path).resolve().is_relative_to(root):
                yield from _matches(entry.path, rest, root)


LARGEST_TEXT: Final = 64 << 10
_ELSEWHERE: Final = ("http://", "https://", "data:")


def attached_paths(value: Any, folder: Path) -> list[Path]:
    """Return the paths of the files that messages attach, each once, in their order.

    Raise `EvalError` for one that is not there or lies outside the repository of `folder`.
    """
    root = repository_root(folder)
    names = (_name_of(part) for message in _with_parts(value) for part in message["content"])
    return list(dict.fromkeys(resolve_inside(root, folder, name) for name in names if name))


def with_file_texts(value: Any, folder: Path) -> Any:
    """Return messages with the text of each attached file in the place of its name.

    A file of more than 64 KiB, one that is no UTF-8 text and one that cannot be read stand as
    their names with a note. Images and what is no message stay as they are.
    """

    def shown(_: Any, name: str) -> dict[str, str]:
        try:
            path = resolve_inside(repository_root(folder), folder, name)
            note = f"{path.stat().st_size:,} bytes"
            text = f"[file: {name}, {note}: too large to be shown here]"
            if path.stat().st_size <= LARGEST_TEXT:
                text = f'<file name="{name}">\n{path.read_text("utf-8-sig")}\n</file>'
        except UnicodeDecodeError:
            text = f"[file: {name}, {note}: no text]"
        except (EvalError, OSError) as error:
            text = f"[file: {name}: {error}]"
        return {"type": "text", "value": text}

    return with_attached(value, shown)


def with_files(messages: list[Any], folder: Path) -> Any:
    """Return messages whose file segments also have `path`, `resolved_path` and `text`.

    `text` is there for a file that `with_file_texts` shows, the paths for one that is there.
    """

    def located(segment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        with suppress(EvalError, OSError, UnicodeDecodeError):  # removed since the suite was loaded
            path = resolve_inside(repository_root(folder), folder, name)
            segment = {**segment, "path": name, "resolved_path": str(path)}
            if path.stat().st_size <= LARGEST_TEXT:
                segment = {**segment, "text": path.read_text("utf-8-sig")}
        return segment

    return with_attached(messages, located)


def with_attached(
    value: Any,
    change: Callable[[Mapping[str, Any], str], Mapping[str, Any]],
    kinds: Collection[str] = ("file",),
) -> Any:
    """Return messages with what `change` makes of each segment that attaches a file, and its name;
    what is no message as it is. `kinds` are the types of such segments.
    """
    if not _with_parts(value):
        return value
    return [
        {
            **message,
            "content": [
                change(part, name) if (name := _name_of(part, kinds)) else part
                for part in message["content"]
            ],
        }
        if _with_parts([message])
        else message
        for message in value
    ]


def _with_parts(value: Any) -> list[Mapping[str, Any]]:
    """Return the messages whose content is a list of segments."""
    messages = value if isinstance(value, list | tuple) else ()
    return [
        message
        for message in messages
        if isinstance(message, Mapping) and isinstance(message.get("content"), list | tuple)
    ]


def _name_of(segment: Any, kinds: Collection[str] = ("file",)) -> str | None:
    """Return the name of the file that a segment attaches; None if it attaches none."""
    name = segment.get("value") if isinstance(segment, Mapping) else None
    if not isinstance(name, str) or segment.get("type") not in kinds or name.startswith(_ELSEWHERE):
        return None
    return name.removeprefix("file://")
