"""A path into a handle's payload, `vendor.name` or `items[*].price`, and the value there.

Keys are separated by dots; a list index is written `items.0` or `items[0]`, all elements are
`items[*]` or `items.*`, a key that contains dots or brackets is written `["a.b"]`. A wildcard
gives one flat list, as RFC 9535 gives one list of nodes. Indices count from 0; a negative one is
out of range.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

_PART: Final = re.compile(
    r"""
    \[ \s* (?: (?P<star>\*) | (?P<index>-?\d+)
             | (?P<quoted>"(?:[^"\\]|\\.)*") | '(?P<single>[^']*)' ) \s* \]
    | (?P<key>[^.\[\]]+)
    """,
    re.VERBOSE,
)

_INDEX: Final = re.compile(r"-?[0-9]{1,4000}")


class Wildcard(Enum):
    """The part of a path that stands for every element of a list."""

    ALL = "*"


Part = str | int | Wildcard


class PayloadPathError(ValueError):
    """A text is not a path; the message says where it stops being one."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A path that leads nowhere: its longest prefix that resolves, and the value there.

    `through_scalar` is true if the path goes on below a text, a number or a boolean, or names a
    key of a list: the value has a type that the path does not fit. It is false for a missing key,
    an index out of range and a path through null.
    """

    partial_path: str
    partial_value: Any
    through_scalar: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value that a path addresses."""

    value: Any


@lru_cache(maxsize=1024)
def parse_payload_path(text: str) -> tuple[Part, ...]:
    """Return the parts of a path. Raises `PayloadPathError`."""
    parts: list[Part] = []
    position = 0
    while position < len(text):
        if parts and text[position] == ".":
            position += 1
        match = _PART.match(text, position)
        if match is None or (parts and match["key"] and text[position - 1] != "."):
            raise PayloadPathError(
                f"path {text[:80]!r}: expected a key, an index or '*' at character {position + 1}"
            )
        parts.append(_part(match))
        position = match.end()
        if position == len(text) - 1 and text[position] == ".":
            raise PayloadPathError(f"path {text[:80]!r} ends with a dot")
    if not parts:
        raise PayloadPathError("a path is not empty; leave it out for the whole payload")
    return tuple(parts)


def _part(match: re.Match[str]) -> Part:
    if match["star"] or match["key"] == "*":
        return Wildcard.ALL
    if match["index"]:
        return int(match["index"])
    if match["quoted"]:
        try:
            return str(json.loads(match["quoted"]))
        except ValueError as error:
            raise PayloadPathError(f"the key {match['quoted'][:80]} is not JSON text") from error
    return str(match["key"] if match["single"] is None else match["single"])


def resolve(payload: Any, path: str | None) -> Resolved | Unresolved:
    """Return the value at a path of a payload; None is the whole payload.

    With a wildcard the value is the flat list of what the rest of the path addresses in each
    element; one element without it makes the path unresolved. Raises `PayloadPathError`.
    """
    if path is None:
        return Resolved(payload)
    return _resolve(payload, parse_payload_path(path), ())


def _resolve(
    value: Any, parts: tuple[Part, ...], walked: tuple[Part, ...]
) -> Resolved | Unresolved:
    for number, part in enumerate(parts):
        if part is Wildcard.ALL:
            return _resolve_each(value, parts[number + 1 :], walked)
        below = _step(value, part)
        if isinstance(below, Unresolved):
            return Unresolved(path_text(walked), value, below.through_scalar)
        value = below.value
        walked = (*walked, part)
    return Resolved(value)


def _resolve_each(
    value: Any, parts: tuple[Part, ...], walked: tuple[Part, ...]
) -> Resolved | Unresolved:
    if not isinstance(value, list):
        return Unresolved(path_text(walked), value, value is not None)
    values: list[Any] = []
    for index, element in enumerate(value):
        resolved = _resolve(element, parts, (*walked, index))
        if isinstance(resolved, Unresolved):
            return resolved
        if Wildcard.ALL in parts:
            values.extend(resolved.value)
        else:
            values.append(resolved.value)
    return Resolved(values)


def _step(value: Any, part: Part) -> Resolved | Unresolved:
    """Return the value one part below another; only `through_scalar` of `Unresolved` counts."""
    if isinstance(value, dict):
        key = str(part)
        return Resolved(value[key]) if key in value else Unresolved("", None, False)
    if isinstance(value, list):
        index = _index_of(part)
        if index is None:
            return Unresolved("", None, True)
        is_there = 0 <= index < len(value)
        return Resolved(value[index]) if is_there else Unresolved("", None, False)
    return Unresolved("", None, value is not None)


def _index_of(part: Part) -> int | None:
    if isinstance(part, int):
        return part
    is_index = isinstance(part, str) and _INDEX.fullmatch(part) is not None
    return int(part) if isinstance(part, str) and is_index else None


def path_text(parts: tuple[Part, ...]) -> str:
    """Return parts as a path, the way `parse_payload_path` reads it; "" for none."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part is Wildcard.ALL:
            text += "[*]"
        elif re.fullmatch(r"[^.\[\]*'\"\s]+", str(part)):
            text += f".{part}" if text else str(part)
        else:
            text += f"[{json.dumps(part, ensure_ascii=False)}]"
    return text
