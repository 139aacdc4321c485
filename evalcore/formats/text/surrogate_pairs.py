r"""Escaped surrogate pairs of YAML, as JSON has them.

JSON is YAML 1.2, and many programs write `😀` as `"\ud83d\ude00"` in it. libyaml refuses the
halves.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPE: Final = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# As long as a pair, so that positions stay.
_STAND_IN: Final = r"\\ufffd\\ufffd"


def join_surrogate_pairs(text: str, loader: Any) -> str:
    r"""Return YAML with each escaped pair in double quotes as one escape (`\U0001f600`).

    Other texts, where a backslash is only a backslash, stay, and so does what is no YAML.
    """
    if not _PAIR.search(text):
        return text
    parts: list[str] = []
    end = 0
    try:
        events: Any = yaml.parse(_PAIR.sub(_STAND_IN, text), Loader=loader)
        for event in events:
            if isinstance(event, yaml.ScalarEvent) and event.style == '"':
                # Marks are there: the text is read from a string.
                start, stop = (mark.index for mark in (event.start_mark, event.end_mark) if mark)
                parts += text[end:start], _ESCAPE.sub(_joined, text[start:stop])
                end = stop
    except (yaml.YAMLError, RecursionError):
        # The reader that follows says what is wrong behind the last pair.
        pass
    return "".join((*parts, text[end:]))


def _joined(escape: re.Match[str]) -> str:
    if escape["high"] is None:
        return escape[0]
    high, low = int(escape["high"], 16), int(escape["low"], 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"
