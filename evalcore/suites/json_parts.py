"""What JSON can hold of a suite in code: its values as JSON, and the places of those it cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from evalcore.jsonvalues import has_equal_keys, has_infinite

Loc = tuple[str | int, ...]

# The values of cases and of variants are looked at where the loader stores them.
_LOOKED_THROUGH: Final = ("flow", "assertions", "scorers", "targets")


class NanOrInfinity:
    """In the place of a number that JSON does not have: the loader refuses it by this name."""


class TwoKeysOfOneText:
    """In the place of a mapping with keys such as 1 and '1', of which JSON would lose one."""


def json_values(value: Any) -> Any:
    """Return a value as JSON holds it; what JSON cannot hold stays, and is found by the loader."""
    try:
        data = orjson.dumps(value, default=_dumped)
    except orjson.JSONEncodeError:
        if not _is_dumped(value):
            return value
        if has_equal_keys(value):
            return TwoKeysOfOneText()
        data = orjson.dumps(value, default=_dumped, option=orjson.OPT_NON_STR_KEYS)
    # orjson writes null for NaN and infinite numbers.
    if b"null" in data and has_infinite(value):
        return _marked(value)
    return orjson.loads(data)


def places_beyond_json(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    """Yield the places of values that JSON cannot hold, and why, in what checks and scores."""
    for key in _LOOKED_THROUGH:
        yield from _refused_values(raw.get(key), (key,))
    cases = raw.get("cases")
    for index, case in enumerate(cases if isinstance(cases, list) else ()):
        if isinstance(case, Mapping):
            yield from _refused_values(case.get("assertions"), ("cases", index, "assertions"))


def _refused_values(value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    try:
        if b"null" not in orjson.dumps(value):
            return
    except orjson.JSONEncodeError:
        pass
    if isinstance(value, Mapping):
        if has_equal_keys(dict.fromkeys(value)):
            yield loc, TwoKeysOfOneText.__name__
        for key, member in value.items():
            yield from _refused_values(member, (*loc, key))
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            yield from _refused_values(member, (*loc, index))
    elif has_infinite(value):
        yield loc, NanOrInfinity.__name__
    else:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError as error:
            yield loc, str(error)


def _dumped(member: Any) -> Any:
    if hasattr(member, "model_dump"):  # a pydantic model
        return member.model_dump(mode="json")
    if isinstance(member, Mapping):
        return dict(member)
    raise TypeError(type(member).__name__)


def _is_dumped(value: Any) -> bool:
    try:
        orjson.dumps(value, default=_dumped, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        return False
    return True


def _marked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _marked(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(member) for member in value]
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return value if is_finite and not has_infinite(value) else NanOrInfinity()
