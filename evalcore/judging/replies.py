"""What counts as a judge's reply: one JSON object that is no copy of what the judge was shown."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from evalcore.model.exchange import split_reasoning

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


_SPACE = " \t\r\n"
_BLOCK = re.compile(r"```(?:json|JSON)?\s(.*?)\s?```", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*([\w+-]*)")
_FENCE_LINE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[ \t]*\r?$", re.MULTILINE)
_ANY_SPACE = re.compile(r"\s+")
_LONGEST = 200_000


class ReplyError(ValueError):
    """A reply is no verdict; the message says why, for the judge to do better."""


def read_object(text: str, material: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON object that the reply is; raise `ReplyError`.

    The answer after any reasoning has to be the object, or to have it in its one block of JSON. A
    key that is there twice and what stands in the `material` are refused.
    """
    if len(text) > _LONGEST:
        raise ReplyError(f"it is longer than {_LONGEST} characters")
    body = _answer_of(text.strip(_SPACE))
    if not body:
        raise ReplyError("it is empty")
    try:
        value = json.loads(body, object_pairs_hook=_unique)
    except ReplyError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReplyError("it is not one JSON object and nothing else") from error
    if not isinstance(value, dict):
        raise ReplyError("it is JSON, but no object")
    bare = _ANY_SPACE.sub("", body)
    if any(bare in _ANY_SPACE.sub("", text) or is_echo(value, text) for text in material):
        raise ReplyError("it stands in the material that is to be judged")
    return value


def _answer_of(text: str) -> str:
    """Return what should be the JSON object: all after the reasoning, or its one block of JSON."""
    # A closing tag in an object is a part of its texts.
    body = text if text.startswith(("{", "```")) else split_reasoning(text)[1].strip(_SPACE)
    whole = _BLOCK.fullmatch(body)
    if whole is not None:
        return whole[1].strip(_SPACE)
    # Fences inside of JSON's texts begin no line.
    fences = list((_FENCE if body.count("```") == 2 else _FENCE_LINE).finditer(body))
    pairs = zip(fences[::2], fences[1::2], strict=False)
    blocks = [(begin[1].lower(), body[begin.end() : end.start()]) for begin, end in pairs]
    for language in ("json", ""):
        of_language = [block for named, block in blocks if named == language]
        if of_language:
            return of_language[0].strip(_SPACE) if len(of_language) == 1 else body
    return body


def score_of(value: Mapping[str, Any], low: float, high: float) -> float:
    """Return the score of a reply; raise `ReplyError` if it is none between `low` and `high`."""
    if "score" not in value:
        raise ReplyError("'score' is missing")
    number = value["score"]
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not low <= number <= high or not math.isfinite(number):
        raise ReplyError(f"'score' has to be a number from {low:g} to {high:g}")
    return float(number)


def text_of(value: Mapping[str, Any], key: str) -> str:
    """Return the text at a key, "" where there is none; raise `ReplyError` for anything else."""
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ReplyError(f"'{key}' has to be a text")
    return text


def aspects_of(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return `assertions`: a list of `{text, passed, evidence?}`; raise `ReplyError`."""
    written = value.get("assertions")
    if written is None:
        return []
    if not isinstance(written, list):
        raise ReplyError("'assertions' has to be a list of {text, passed, evidence}")
    aspects = []
    for entry in written:
        sound = isinstance(entry, dict) and isinstance(entry.get("passed"), bool)
        if not sound or not isinstance(entry.get("text"), str):
            raise ReplyError("each of 'assertions' has a 'text' and 'passed', true or false")
        evidence = text_of(entry, "evidence")
        aspect = {"text": entry["text"], "passed": entry["passed"]}
        aspects.append({**aspect, "evidence": evidence} if evidence else aspect)
    return aspects


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ReplyError("a key stands in it twice")
    return mapping
