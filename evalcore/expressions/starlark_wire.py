"""What passes between a script's process and this one: lines of JSON that keep a mapping's keys.

Standard library only: the script's process loads it as a file.
"""

from __future__ import annotations

import json
from typing import Any

_SCALARS = (str, int, float, bool, type(None))
_DEEPEST = 100


class UnsendableError(Exception):
    """A value is none that JSON knows; the message says which."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as a line; keys are texts, values anything that `decode` gives back."""
    packed = {key: _pack(value, 0) for key, value in message.items()}
    return json.dumps(packed, ensure_ascii=True).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message of a line."""
    return {key: _unpack(value) for key, value in json.loads(line).items()}


def _pack(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise UnsendableError(f"a value nested deeper than {_DEEPEST} levels")
    if isinstance(value, bool) or value is None:
        return value
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)
    if isinstance(value, (set, frozenset)):  # in the order that they have in expressions
        value = sorted(value, key=lambda member: (type(member).__name__, repr(member)))
    if isinstance(value, (list, tuple)):
        return [_pack(each, depth + 1) for each in value]
    if isinstance(value, dict):
        pairs = []
        for key, each in value.items():
            if not isinstance(key, _SCALARS):
                raise UnsendableError(f"a key of type {type(key).__name__}")
            pairs.append([_pack(key, 0), _pack(each, depth + 1)])
        return {"pairs": pairs}
    raise UnsendableError(f"a value of type {type(value).__name__}")


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(each) for each in value]
    if isinstance(value, dict):
        return {_unpack(key): _unpack(each) for key, each in value["pairs"]}
    return value
