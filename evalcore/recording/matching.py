"""Which recording is nearest to a request that has none, and what differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import orjson

from evalcore.recording.content import Question

_COMPARED_CHARACTERS: Final = 1_000
_SHOWN_CHARACTERS: Final = 40
_SHOWN_BEFORE: Final = 10
_MOST_DIFFERENCES: Final = 3
_ABSENT: Final = object()
# Fences of judges (`judging.fences`): their codes change with every text between them.
_FENCE_CODE: Final = re.compile(r"(?<= )[0-9a-f]{24}(?=>>\n|>>$)")
_FENCE: Final = re.compile(r"<<(END )?([^<>\n]+) …>>")


class Candidate(NamedTuple):
    """A recording that a miss is compared with; its question is free of secrets."""

    digest: str
    question: Question


class _NeighbourEntry(NamedTuple):
    candidate: Candidate
    text: str
    frame: tuple[bytes, ...]


class Neighbours:
    """Some recordings, ready for looking up the nearest; the same ones give the same answer."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        ordered = sorted(candidates, key=lambda candidate: candidate.digest)
        self._entries = [_entry(candidate) for candidate in ordered]
        self._texts = [entry.text for entry in self._entries]

    def nearest(self, question: Question) -> Candidate | None:
        """Return the recording with the most similar last message; of several the most like it."""
        from rapidfuzz.distance import Indel
        from rapidfuzz.process import extract_iter

        if not self._entries:
            return None
        entry = _entry(Candidate("", question))
        scores = extract_iter(entry.text, self._texts, scorer=Indel.normalized_similarity)
        _, position = max(
            (likeness + _alike(entry, self._entries[position]), -position)
            for _, likeness, position in scores
        )
        return self._entries[-position].candidate


def differences(recorded: Question, question: Question) -> str:
    """Say what differs, `recorded → asked`: the first three places, in the order of a request."""
    lines = list(_between(_flat(recorded), _flat(question), ""))
    listed = "; ".join(lines[:_MOST_DIFFERENCES])
    more = len(lines) - _MOST_DIFFERENCES
    return f"{listed}; and {more} more" if more > 0 else listed


def _flat(question: Question) -> dict[str, Any]:
    return {
        **question.identity,
        "iteration": question.iteration,
        "invocation": question.invocation,
    }


def _between(recorded: Any, current: Any, path: str) -> Iterator[str]:
    if isinstance(recorded, Mapping) and isinstance(current, Mapping):
        for name in dict.fromkeys([*recorded, *current]):
            inner = f"{path}.{name}" if path else str(name)
            yield from _between(recorded.get(name, _ABSENT), current.get(name, _ABSENT), inner)
    elif _is_list(recorded) and _is_list(current):
        for number, (before, after) in enumerate(zip_longest(recorded, current, fillvalue=_ABSENT)):
            yield from _between(before, after, f"{path}[{number}]")
    elif isinstance(recorded, str) and isinstance(current, str):
        if recorded != current:
            yield _text_difference(recorded, current, path)
    elif _json(recorded) != _json(current):
        yield f"{path} {_excerpt(recorded)} → {_excerpt(current)}"


def _text_difference(recorded: str, current: str, path: str) -> str:
    if max(len(recorded), len(current)) <= _SHOWN_CHARACTERS and not path.startswith("messages"):
        return f"{path} {_excerpt(recorded)} → {_excerpt(current)}"
    texts = [_FENCE_CODE.sub("…", text) for text in (recorded, current)]
    if texts[0] == texts[1]:
        texts = [recorded, current]
    at = _common_length(*texts)
    fences = _FENCE.findall(texts[1][:at])
    inside = f" in {fences[-1][1]}" if fences and not fences[-1][0] else ""
    start = max(0, at - _SHOWN_BEFORE)
    parts = (text[start : start + _SHOWN_CHARACTERS] for text in texts)
    excerpts = " → ".join(f"{'…' if start else ''}{_excerpt(part)}" for part in parts)
    return f"{path}{inside} at character {at + 1} ({excerpts})"


def _common_length(left: str, right: str) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _excerpt(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = _json(value).decode()
    return text if len(text) <= 2 * _SHOWN_CHARACTERS else f"{text[: 2 * _SHOWN_CHARACTERS]}…"


def _json(value: Any) -> bytes:
    if value is _ABSENT:
        return b""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _entry(candidate: Candidate) -> _NeighbourEntry:
    identity = candidate.question.identity
    messages = identity.get("messages") or [identity.get("parameters")]
    content = messages[-1].get("content") if isinstance(messages[-1], Mapping) else None
    text = content if isinstance(content, str) else _json(messages[-1]).decode()
    frame = [_json(identity.get(name)) for name in ("provider", "model", "parameters", "tools")]
    frame += [_json(len(messages)), _json(messages[:-1]), _json(identity.get("response_schema"))]
    return _NeighbourEntry(candidate, text[:_COMPARED_CHARACTERS], tuple(frame))


def _alike(sought: _NeighbourEntry, entry: _NeighbourEntry) -> float:
    """Return a little for each part of the frame that is equal, and less for being near in time."""
    question, candidate = sought.candidate.question, entry.candidate.question
    away = abs(question.iteration - candidate.iteration) + abs(
        question.invocation - candidate.invocation
    )
    equal = sum(a == b for a, b in zip(sought.frame, entry.frame, strict=True))
    return 0.04 * equal - 0.01 * min(away, 3)
