"""JSON text as RFC 8259 has it: no NaN or Infinity, no other white space than JSON's."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_CONTAINER_START = re.compile(r"[\[{]")
_DIGITS_AT_ONCE = 4000  # Python refuses more than 4300


class NotJsonError(ValueError):
    """The text is not JSON."""


def parse(text: str) -> Any:
    """Return the value of a JSON text; raise `NotJsonError` if it is none.

    Integers of any length are exact; a number beyond the largest float is infinity. Raises
    `RecursionError` where the text is nested more deeply than Python's parser can go.
    """
    try:
        return _decode(_DECODER, text)
    except NotJsonError:
        raise
    except ValueError:  # an integer of more digits than `int` takes
        return _decode(_PATIENT_DECODER, text)


def is_json(text: str) -> bool:
    """Return whether the text is JSON; raise `RecursionError` as `parse` does."""
    import orjson

    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        # It also refuses a few valid texts: numbers beyond a float, lone surrogates, deep nesting.
        try:
            parse(text)
        except NotJsonError:
            return False
    return True


def first_container(text: str) -> Any:
    """Return the first JSON object or array in the text, by position; else `NotJsonError`.

    Raises `RecursionError` as `parse` does.
    """
    for start in _CONTAINER_START.finditer(text):
        for decoder in (_DECODER, _PATIENT_DECODER):
            try:
                return decoder.raw_decode(text, start.start())[0]
            except (NotJsonError, json.JSONDecodeError):
                break
            except ValueError:
                continue
    raise NotJsonError("contains no JSON object or array")


def _decode(decoder: json.JSONDecoder, text: str) -> Any:
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        raise NotJsonError(f"is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise NotJsonError(f"is not JSON: {name} is not allowed")


def _integer(digits: str) -> int:
    if len(digits) <= _DIGITS_AT_ONCE:
        return int(digits)
    if digits.startswith("-"):
        return -_integer(digits[1:])
    half = len(digits) // 2
    scale: int = 10**half
    return _integer(digits[:-half]) * scale + _integer(digits[-half:])


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_PATIENT_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_integer)
