"""A test's input as messages, and the files that it names (docs/reference/test-files.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import EvalError
from evalcore.judging.prompts import plain_messages
from evalcore.problems import Problems
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.wording import Loc

_ELSEWHERE: Final = ("http://", "https://", "data:")
_ROLES: Final = ("system", "user", "assistant", "tool")
_FILE_SEGMENTS: Final = frozenset({"file", "image"})
_WITH_MESSAGES: Final = ("input", "expected_output")
_FILE: Final = "file://"
# Below these keys an author's texts may be named by their files, and below the others not.
_TEXTS: Final = frozenset(
    {
        *("input", "inputs", "vars", "fixtures", "criteria", "value", "rubric", "rubrics"),
        *("expected_output", "expected_outcome", "output"),
        *("prompt_template", "system_prompt", "task", "body_template"),
    }
)
_NO_TEXTS: Final = frozenset({"args", "metadata", "targets", "workspace"})
_LARGEST_REFERENCE: Final = 64 * 1024


class InputOrigin(NamedTuple):
    """Where an input stands: the suite's folder, its path, the collector, the test's label.

    Without a folder no file may be named.
    """

    folder: Path | None
    loc: Loc
    problems: Problems
    label: str = ""

    def below(self, step: str | int) -> InputOrigin:
        """Return where a part of it stands."""
        return self._replace(loc=(*self.loc, step))


def with_plain_messages(test: Any) -> Any:
    """Return a test, or a suite's level, whose messages have one form (`plain_messages`)."""
    if type(test) is not dict:
        return test
    plain = {}
    for key in _WITH_MESSAGES:
        if isinstance(test.get(key), (list, dict)):
            plain[key] = plain_messages(test[key])
    turns = test.get("turns")
    if isinstance(turns, list):
        plain["turns"] = [_with_plain_segments(turn) for turn in turns]
    return {**test, **plain} if plain else test


def read_named_texts(written: Any, origin: InputOrigin, *, reads: bool = False) -> Any:
    """Return a part of an author's file with the texts of the files that it names.

    `file://NAME` is read where a text stands that is asked, answered, expected or compared, and as
    the prompt of a workflow; `reads` says that `written` is such a text. A file that is not there,
    lies outside the repository or is no text is noted.
    """
    if isinstance(written, str):
        return _named_text(written, origin) if reads and written.startswith(_FILE) else written
    if isinstance(written, list):
        return [
            read_named_texts(each, origin.below(index), reads=reads)
            for index, each in enumerate(written)
        ]
    if not isinstance(written, dict):
        return written
    named = written.get("type")
    below = reads and not (isinstance(named, str) and named in _FILE_SEGMENTS)
    read = {}
    for key, each in written.items():
        if key in _NO_TEXTS:
            read[key] = each
        elif key == "config":
            rubric = isinstance(each, dict) and each.get("rubric")
            at = origin.below(key).below("rubric")
            own = {"rubric": read_named_texts(rubric, at, reads=True)} if rubric else {}
            read[key] = {**each, **own} if own else each
        else:
            # `value` of a segment is a file's name, `$ref` one of a schema.
            inner = below and not str(key).startswith("$")
            is_text = inner or (key in _TEXTS and below == reads)
            read[key] = read_named_texts(each, origin.below(key), reads=is_text)
    return read


def _named_text(written: str, origin: InputOrigin) -> str:
    path = check_file(written.removeprefix(_FILE), origin)
    if path is None:
        return written
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        origin.problems.add(origin.loc, f"{written} is no UTF-8 text", label=origin.label)
        return written


def _with_plain_segments(turn: Any) -> Any:
    """Return a turn whose input, the content of a user message, has segments."""
    if not isinstance(turn, dict) or not isinstance(turn.get("input"), list):
        return turn
    message = plain_messages({"role": "user", "content": turn["input"]})
    return {**turn, "input": message["content"]}


def as_messages(value: Any) -> list[Any]:
    """Return an input as a list of messages; a text or an object is one user message."""
    if is_message(value):
        return [_message(value)]
    if isinstance(value, list):
        return [_message(message) for message in value]
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [{"role": "user", "content": json.dumps(value, ensure_ascii=False)}]


def is_message(value: Any) -> bool:
    """Whether an object is a message by itself, and not what a message holds."""
    return isinstance(value, dict) and "content" in value and value.get("role") in _ROLES


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message whose content is text or segments: an object is its JSON."""
    content = message.get("content")
    if isinstance(content, str | list):
        return message
    text = "" if content is None else json.dumps(content, ensure_ascii=False)
    return {**message, "content": text}


def check_messages(value: Any, origin: InputOrigin) -> None:
    """Note messages without content, and files in them that are not there."""
    if not isinstance(value, list):
        return
    for index, message in enumerate(value):
        loc = (*origin.loc, index)
        content = message.get("content")
        if content is None and not message.get("tool_calls"):
            origin.problems.add(loc, "has no 'content'", label=origin.label)
        for part, segment in enumerate(content if isinstance(content, list) else ()):
            name = segment["value"]
            if segment["type"] != "text" and not name.startswith(_ELSEWHERE):
                at = (*loc, "content", part, "value")
                check_file(name.removeprefix("file://"), origin._replace(loc=at))


def check_file(name: str, origin: InputOrigin) -> Path | None:
    """Return the path of a file; note one that does not exist or lies outside the repository."""
    if origin.folder is None:
        origin.problems.add(origin.loc, f"{_FILE}{name} is not read here: write the text itself")
        return None
    try:
        return resolve_inside(repository_root(origin.folder), origin.folder, name)
    except EvalError as error:
        origin.problems.add(origin.loc, str(error), label=origin.label)
        return None


def read_reference(value: Any, origin: InputOrigin) -> Any:
    """Return an expected output with the text of the files that its messages name.

    Files that are not there or lie outside the repository are noted. One that is larger than
    64 KiB or no text stays a segment, which is shown as its name.
    """
    if not isinstance(value, list) or not all(isinstance(message, Mapping) for message in value):
        return value
    return [
        {**message, "content": _read_segments(message["content"], origin._replace(loc=at))}
        if isinstance(message.get("content"), list)
        else message
        for index, message in enumerate(value)
        for at in [(*origin.loc, index, "content")]
    ]


def _read_segments(content: list[Any], origin: InputOrigin) -> list[Any]:
    read = []
    for index, segment in enumerate(content):
        named = isinstance(segment, Mapping) and segment.get("type") in _FILE_SEGMENTS
        name = segment.get("value") if named else None
        if not isinstance(name, str) or name.startswith(_ELSEWHERE):
            read.append(segment)
            continue
        at = origin._replace(loc=(*origin.loc, index, "value"))
        path = check_file(name.removeprefix("file://"), at)
        text = None if path is None or segment["type"] == "image" else _text_in(path)
        read.append(segment if text is None else {"type": "text", "value": text})
    return read


def _text_in(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_REFERENCE + 1)
        return None if len(data) > _LARGEST_REFERENCE else data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def with_files(
    messages: Sequence[Mapping[str, Any]], files: Sequence[str], own: int, *, first: bool
) -> list[Any]:
    """Return messages with files before what the last user message says (`first`: the first one).

    Those of the test begin at `own`: the suite's come before.
    """
    if not files:
        return list(messages)
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    ours = [at for at in users if at >= own] or users or [len(messages) - 1]
    chosen = ours[0] if first else ours[-1]
    message = messages[chosen]
    content = message["content"]
    segments = content if isinstance(content, list) else [{"type": "text", "value": content}]
    attached = [{"type": "file", "value": name} for name in files]
    changed = {**message, "content": [*attached, *segments]}
    return [*messages[:chosen], changed, *messages[chosen + 1 :]]
