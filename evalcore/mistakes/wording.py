"""The words of mistakes: paths, foreign values, the name that was probably meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from evalcore.mistakes.locations import Loc

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
