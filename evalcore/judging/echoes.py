"""Whether a judge's verdict is an echo: an object of the material, written in another way."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

_TOKEN: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\w+")
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPED_SPACE: Final = re.compile(r"\\[nrtbf]")
# Another spelling of an object is not much longer or shorter: escapes, indentation, quotes.
_LONGER: Final = 8
_SHORTER: Final = 4
_MOST_SPANS: Final = 10_000


def is_echo(verdict: Mapping[str, Any], text: str) -> bool:
    """Whether the text holds an object of the same keys and values as the verdict.

    Order, spaces, quotes, escapes, the spelling of numbers and letters' case do not count, so that
    JSON, YAML's flow style and Python's words for the same object are the same.
    """
    written = json.dumps(verdict, ensure_ascii=False)
    tokens = _tokens(written)
    least, most = len(written) // _SHORTER, len(written) * _LONGER
    return any(_tokens(span) == tokens for span in _spans(text, least, most))


def _spans(text: str, least: int, most: int) -> Iterator[str]:
    """Yield the parts of the text between a `{` and its `}`, of such lengths, inner ones first."""
    opened: list[int] = []
    number = 0
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            begin = opened.pop()
            if least <= match.end() - begin <= most:
                number += 1
                if number > _MOST_SPANS:
                    return
                yield text[begin : match.end()]


def _tokens(written: str) -> list[str]:
    """Return the words and numbers of a written object, sorted."""
    plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), written)
    plain = _ESCAPED_SPACE.sub(" ", plain).replace("\\", "")
    plain = unicodedata.normalize("NFKC", plain).casefold()
    return sorted(map(_plain_number, _TOKEN.findall(plain)))


def _plain_number(token: str) -> str:
    if token[0] not in "-0123456789":
        return token
    try:
        return repr(float(token))
    except (ValueError, OverflowError):
        return token
