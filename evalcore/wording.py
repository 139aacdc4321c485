"""Words of messages: names, numbers, texts of others, and what was meant instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from evalcore.errors import EvalError

Loc = tuple[str | int, ...]
Locate = Callable[[Loc], int | None]

_LONGEST = 40


def path_text(loc: Loc) -> str:
    """Return `tests[3].assertions[0].type` for a path."""
    text = ""
    for part in loc:
        name = part if isinstance(part, int) else " ".join(str(part).split())
        text += f"[{name}]" if isinstance(name, int) else f".{name}" if text else name
    return text


def plural(count: int, noun: str) -> str:
    """Return `case` for 1, `cases` for any other number; `reply` becomes `replies`."""
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith(("ly", "ry")) else f"{noun}s"


def outcomes_text(counts: Mapping[str, int]) -> str:
    """Return how many items came to each outcome; zeros are left out, but for what passed."""
    words = {"error": "in error"}
    return ", ".join(
        f"{number} {words.get(name, name)}"
        for name, number in counts.items()
        if number or name == "passed"
    )


def counted(count: int, noun: str) -> str:
    """Return `1 case`, `2 cases`."""
    return f"{count} {plural(count, noun)}"


def there_are(count: int, noun: str) -> str:
    """Return `there is 1 trial`, `there are 2 trials`."""
    return f"there {'is' if count == 1 else 'are'} {counted(count, noun)}"


def suggest(word: object, names: Iterable[object], *, most: int | None = None) -> str:
    """Return ` Did you mean 'x'?` for the nearest of `names`, else ` Known: a, b.`.

    At most `most` names are listed. Without names the text is empty.
    """
    listed = sorted({str(name) for name in names})
    return did_you_mean(word, listed) or (f" {known_names(listed, most)}" if listed else "")


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest of `names`; empty if none is near."""
    near = nearest(word, names)
    return "" if near is None else f" Did you mean '{near}'?"


def known_names(names: Iterable[str], most: int | None = None) -> str:
    """Return `Known: a, b.`, sorted, with a count of those beyond `most`."""
    listed = sorted(set(names))
    if not listed:
        return "There is none."
    rest = 0 if most is None else len(listed) - most
    more = f" and {rest} more" if rest > 0 else ""
    return f"Known: {', '.join(listed[:most])}{more}."


def nearest(word: object, names: Iterable[str]) -> str | None:
    """Return the name that is nearest to `word`, None if none is near.

    Case does not count, and `-` and `_` are the same.
    """
    from difflib import get_close_matches

    by_folded = {_folded(name): name for name in names}
    near = get_close_matches(_folded(str(word)), list(by_folded), n=1, cutoff=0.6)
    return by_folded[near[0]] if near else None


def suggest_assertion(kind: str, types: Collection[str]) -> str:
    """Return what `suggest` would, for an assertion type: one of another format may be meant.

    Each of `types` may have `not-` before it, and is suggested so for a `kind` that has.
    """
    names = {name for name in types if name.replace("_", "-") not in set(types) - {name}}
    names = {name for name in names if not _folded(name).startswith("not-")}
    bare = _folded(kind).removeprefix("not-")
    own = next(iter(names & (_ELSEWHERE.get(bare) or set())), None)
    if bare != _folded(kind):
        names = {f"not-{name}" for name in names}
    return suggest(kind, names) if own is None else f" Did you mean '{own}'?"


_JUDGES = {"llm_judge", "llm-grader"}
# What other programs, and other versions of them, call an assertion.
_ELSEWHERE = {
    **dict.fromkeys(("agent-judge", "llm-judge", "llm-grader", "llm-rubric"), _JUDGES),
    "model-graded": _JUDGES,
    "script": {"code-grader"},
}


def describe(value: object) -> str:
    """Return a short text for a foreign value: `the number 3`, `a list`, `null`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {_cut(str(value))}"
        case str():
            return f"'{_cut(value)}'"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return type(value).__name__


def shown_path(path: Path) -> str:
    """Return a path as it is written in the current folder: relative to it where it lies below."""
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _cut(text: str) -> str:
    line = " ".join(text[: _LONGEST + 1].split())
    return f"{line[:_LONGEST]}…" if len(text) > _LONGEST else line


def _folded(word: str) -> str:
    return word.lower().replace("_", "-")


LINE_LENGTH = 500
QUOTED_LENGTH = 80
_LISTED = 5


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair: Python has one for a byte that is no text."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def shorten(text: str, limit: int = LINE_LENGTH) -> str:
    """Return the text, its end replaced by `…` where it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str, limit: int = LINE_LENGTH) -> str:
    """Return the text with each run of white space as one blank, shortened."""
    return shorten(" ".join(text[: 4 * limit].split()), limit)


def quote(text: str) -> str:
    """Return the text in quotes, on one line, shortened."""
    return repr(shorten(text, QUOTED_LENGTH))


def quote_pattern(pattern: str) -> str:
    r"""Return a regular expression in quotes as its author wrote it, `\d` with one backslash.

    It stays on one line: what `repr` escapes means the same in a pattern.
    """
    return quote(pattern).replace("\\\\", "\\")


def quote_all(texts: Sequence[str]) -> str:
    """Return the texts in quotes, the first five of them."""
    listed = ", ".join(map(quote, texts[:_LISTED]))
    more = len(texts) - _LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def escape_character(match: re.Match[str]) -> str:
    r"""Return a matched character as `\x1b`, `\u202e` or `\U000e0001`."""
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_text(value: Any) -> str:
    """Return the value as JSON text, or in Python's words where JSON has none for it."""
    try:
        plain = dict(value) if isinstance(value, Mapping) and type(value) is not dict else value
        return json.dumps(plain, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def value_text(value: Any) -> str:
    """Return the text that a value is compared as: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def describe_error(error: BaseException) -> str:
    """Return `Type: message` on one line, even if the exception cannot say its message.

    The project's own errors say enough without their type.
    """
    try:
        message = one_line(str(error))
    except Exception:  # noqa: BLE001 - a foreign __str__
        message = ""
    name = type(error).__name__
    if message and isinstance(error, EvalError):
        return message
    return f"{name}: {message}" if message else name


_MOST_ENTRIES = 2_000


def missing_file(path: Path) -> str:
    """Return `no such file`, with the file of nearly the same name that stands beside it.

    Names are compared up to their first dot: what follows it says little of which file is meant.
    """
    names: dict[str, str] = {}
    with suppress(OSError):
        entries = islice(path.parent.iterdir(), _MOST_ENTRIES)
        files = sorted(entry.name for entry in entries if entry.is_file())
        names = {_before_dot(name): name for name in reversed(files)}
    near = nearest(_before_dot(path.name), names)
    if near is None:
        return "no such file"
    return f"no such file. Did you mean '{path.parent / names[near]}'?"


def _before_dot(name: str) -> str:
    return name.partition(".")[0]
