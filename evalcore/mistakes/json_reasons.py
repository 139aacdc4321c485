"""Why a text is not taken as JSON, where the parser's own words mislead."""

from __future__ import annotations

from typing import Final

_SURROGATE: Final = "surrogate in string"


def json_reason(error: ValueError) -> str:
    """Return what orjson found, with its place.

    JSON may spell half of a surrogate pair, which is no character and cannot be stored as UTF-8.
    """
    text = str(error)
    words, separator, position = text.partition(": line ")
    if separator and words.endswith(_SURROGATE):
        return (
            "half of a surrogate pair (\\ud800 to \\udfff without its other half) is no character: "
            f"write both halves or neither: line {position}"
        )
    return text
