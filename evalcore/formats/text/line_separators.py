"""U+0085, U+2028 and U+2029: line breaks to YAML 1.1, which libyaml reads, and not to YAML 1.2.

What models answer has them. While YAML is read, other characters stand in for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SEPARATORS: Final = ("\x85", "\u2028", "\u2029")
_PRIVATE_USE: Final = range(0xE000, 0xF900)
NOTHING_HIDDEN: Final[Mapping[int, str]] = {}


def hide_separators(text: str) -> tuple[str, Mapping[int, str]]:
    """Return YAML with a character for each separator, and what each of those stands for.

    The stand-ins occur in the text neither as such nor as escapes.
    """
    if not any(each in text for each in _SEPARATORS):
        return text, NOTHING_HIDDEN
    escapes = text.lower()
    free = (code for code in _PRIVATE_USE if chr(code) not in text and f"{code:04x}" not in escapes)
    hidden = dict(zip(free, _SEPARATORS, strict=False))
    return text.translate({ord(each): code for code, each in hidden.items()}), hidden


def show_separators(value: Any, hidden: Mapping[int, str]) -> Any:
    """Return a value that was read, with the separators in its texts."""
    if isinstance(value, str):
        return value.translate(hidden)
    if isinstance(value, list):
        return [show_separators(member, hidden) for member in value]
    if isinstance(value, dict):
        return {
            show_separators(key, hidden): show_separators(member, hidden)
            for key, member in value.items()
        }
    return value
