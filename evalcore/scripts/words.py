"""The keys of scripts and suites, and checking them by hand: statements are not a fixed shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe, suggest
from evalcore.scripts.mistake_collector import MistakeCollector

MOST_LISTED = 40


def check_keys(
    raw: Mapping[Any, Any], known: Iterable[str], loc: Loc, mistakes: MistakeCollector
) -> bool:
    """Note keys that are no text or not known; return whether all are."""
    names = tuple(known)
    sound = True
    for key in raw:
        if key in names:
            continue
        sound = False
        if isinstance(key, str):
            mistakes.add(
                (*loc, key), f"unknown key '{key}'.{suggest(key, names, most=MOST_LISTED)}"
            )
        else:
            text = f"a key must be text, got {describe(key)}; write it in quotes"
            mistakes.add((*loc, str(key)), text)
    return sound


def is_text(value: Any, loc: Loc, mistakes: MistakeCollector, *, what: str = "text") -> bool:
    """Whether a value is a text that is not empty; note it if not."""
    if isinstance(value, str) and value:
        return True
    if value == "":
        mistakes.add(loc, "must not be empty")
    else:
        mistakes.add(loc, f"expected {what}, got {describe(value)}")
    return False
