"""The keys of scripts and suites, and checking them by hand: statements are not a fixed shape."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from evalcore.scripts.mistakes import Mistakes, Place

_LISTED = 40


def describe(value: object) -> str:
    """Return a short text for a foreign value: `the number 3`, `a list`, `null`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        text = " ".join(value.split())
        return f"'{text[:40]}…'" if len(text) > 40 else f"'{text}'"
    return "a list" if isinstance(value, list) else "a mapping"


def suggest(word: object, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known word, or the list of known words."""
    names = sorted(set(known))
    near = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    if near:
        return f" Did you mean '{near[0]}'?"
    return f" {listed(names)}" if names else ""


def listed(names: Iterable[str]) -> str:
    """Return `Known: a, b.`"""
    every = sorted(set(names))
    if not every:
        return "There is none."
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return f"Known: {', '.join(every[:_LISTED])}{more}."


def check_keys(
    raw: Mapping[Any, Any], known: Iterable[str], loc: Place, mistakes: Mistakes
) -> bool:
    """Note keys that are no text or not known; return whether all are."""
    names = tuple(known)
    sound = True
    for key in raw:
        if key in names:
            continue
        sound = False
        if isinstance(key, str):
            mistakes.add((*loc, key), f"unknown key '{key}'.{suggest(key, names)}")
        else:
            text = f"a key must be text, got {describe(key)}; write it in quotes"
            mistakes.add((*loc, str(key)), text)
    return sound


def is_text(value: Any, loc: Place, mistakes: Mistakes, *, what: str = "text") -> bool:
    """Whether a value is a text that is not empty; note it if not."""
    if isinstance(value, str) and value:
        return True
    if value == "":
        mistakes.add(loc, "must not be empty")
    else:
        mistakes.add(loc, f"expected {what}, got {describe(value)}")
    return False
