"""The words of promptfoo's assertions: each as an assertion of a suite file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from evalcore.conversion.expected_checks import as_criteria
from evalcore.conversion.promptfoo.files import NotTakenOverError
from evalcore.conversion.promptfoo.templates import script_text
from evalcore.errors import LoadError
from evalcore.formats.text.documents import parse_document

Assertion = dict[str, Any]

_QUOTED: Final = re.compile(r'(".*?"|[^,]+)(?=\s*,|\s*$)')
# What stands for itself in a pattern of ECMAScript and of Python.
_SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")
_GROUP: Final = re.compile(r"\(\?<(?![=!])")


class Written(NamedTuple):
    """An assertion as it is written, and its value with files read and templates filled in."""

    raw: Mapping[str, Any]
    value: Any

    @property
    def text(self) -> str:
        """The value as text; raise `NotTakenOverError` if it is a list or a mapping."""
        if self.value is None or isinstance(self.value, list | Mapping):
            raise NotTakenOverError("its 'value' is no text")
        return str(script_text(self.value))

    def threshold(self, default: float) -> float:
        """The threshold, in promptfoo's own default."""
        value = self.raw.get("threshold")
        return default if value is None else value


def _plain(kind: str) -> Callable[[Written], Assertion]:
    return lambda written: {"type": kind, "value": written.text}


def _listed(kind: str) -> Callable[[Written], Assertion]:
    def read(written: Written) -> Assertion:
        value = written.value
        if not isinstance(value, list):
            text = written.text
            if kind == "contains-any":
                value = [
                    each.strip().removeprefix('"').removesuffix('"')
                    for each in _QUOTED.findall(text)
                ]
            else:
                value = [each.strip() for each in text.split(",")]
        return {"type": kind, "value": [str(script_text(each)) for each in value]}

    return read


def _equals(written: Written) -> Assertion:
    if isinstance(written.value, list | Mapping):
        return {"type": "equals", "value": written.value, "config": {"mode": "json"}}
    return {"type": "equals", "value": str(script_text(written.value))}


def _regex(written: Written) -> Assertion:
    """Return the pattern in Python's dialect: digits and words are ASCII, `$` is the very end."""
    pattern = _GROUP.sub("(?P<", written.text)
    in_class, python = False, ""
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        in_class = (part == "[" or in_class) and part != "]"
        python += r"\Z" if part == "$" and not in_class else part
    python = f"(?a){python}" if re.search(r"\\[wdbWDB]", python) else python
    try:
        re.compile(python)
    except re.error as error:
        raise NotTakenOverError(f"the pattern is none of Python's: {error}") from error
    return {"type": "regex", "value": python}


def _json(kind: str) -> Callable[[Written], Assertion]:
    def read(written: Written) -> Assertion:
        schema = written.value
        if isinstance(schema, str) and schema.strip():
            try:
                schema = parse_document(schema.encode(), kind).value
            except LoadError as error:
                raise NotTakenOverError("its schema cannot be read") from error
        if schema and not isinstance(schema, Mapping):
            raise NotTakenOverError("its 'value' is no schema")
        return {"type": kind} | ({"value": schema} if schema else {})

    return read


def _graded(kind: str, default: float) -> Callable[[Written], Assertion]:
    return lambda written: {
        "type": kind,
        "value": written.text,
        "threshold": written.threshold(default),
    }


def _maximum(kind: str) -> Callable[[Written], Assertion]:
    def read(written: Written) -> Assertion:
        if written.raw.get("threshold") is None:
            raise NotTakenOverError("it has no 'threshold'")
        return {"type": kind, "threshold": written.raw["threshold"]}

    return read


def _word_count(written: Written) -> Assertion:
    value = written.value
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    return {"type": "word-count", "value": value}


def _judged(form: str) -> Callable[[Written], Assertion]:
    def read(written: Written) -> Assertion:
        value = written.value
        if isinstance(value, list):
            value = "\n".join(f"- {each}" for each in value)
        elif isinstance(value, Mapping):
            value = orjson.dumps(value).decode()
        if not str(value or "").strip():
            raise NotTakenOverError("it has no 'value'")
        assertion: Assertion = {"type": "llm_judge", "criteria": as_criteria(form.format(value))}
        threshold = written.raw.get("threshold")
        return assertion | ({} if threshold is None else {"min_score": threshold})

    return read


WORDS: Final[Mapping[str, Callable[[Written], Assertion]]] = {
    **{kind: _plain(kind) for kind in ("contains", "icontains", "starts-with", "ends-with")},
    **{
        kind: _listed(kind)
        for kind in ("contains-any", "contains-all", "icontains-any", "icontains-all")
    },
    "equals": _equals,
    "regex": _regex,
    "is-json": _json("is-json"),
    "contains-json": _json("contains-json"),
    "levenshtein": _graded("levenshtein", 5),
    "bleu": _graded("bleu", 0.5),
    "rouge-n": _graded("rouge-n", 0.75),
    "similar": _graded("similar", 0.75),
    "latency": _maximum("latency"),
    "cost": _maximum("cost"),
    "word-count": _word_count,
    "llm-rubric": _judged("{}"),
    "g-eval": _judged("{}"),
    "model-graded-closedqa": _judged("{}"),
    "factuality": _judged("The answer does not contradict these facts: {}"),
    "model-graded-factuality": _judged("The answer does not contradict these facts: {}"),
}
"""The types with a counterpart."""


_MEMBERS: Final = ("contains", "icontains", "latency", "cost", "similar", "is-json")
_ANCHORED: Final = {"equals": "^{}$", "starts-with": "^{}", "ends-with": "{}$"}


def as_member(assertion: Assertion) -> Assertion | None:
    """Return an assertion in the words of test files, as members of a composite are written.

    None if test files have none: they compare trimmed texts, so that a pattern stands for those.
    """
    kind = str(assertion["type"]).removeprefix("not-")
    member = _member(kind, assertion)
    if member is None or member.get("value", "x") in ("", []):
        return None
    if "weight" in assertion:
        member["weight"] = assertion["weight"]
    return member | ({"negate": True} if assertion["type"].startswith("not-") else {})


def _member(kind: str, assertion: Assertion) -> Assertion | None:
    value = assertion.get("value")
    if kind in _ANCHORED and isinstance(value, str):
        return {"type": "regex", "value": _ANCHORED[kind].format(_SPECIAL.sub(r"\\\g<0>", value))}
    if kind == "regex":
        pattern = str(value).removeprefix("(?a)").replace(r"\Z", "$").replace("(?P<", "(?<")
        return {"type": "regex", "value": pattern}
    if kind == "llm_judge":
        grader = {"type": "llm-grader", "prompt": assertion["criteria"]}
        threshold = assertion.get("min_score")
        grader |= {} if threshold is None else {"threshold": threshold}
        return grader | (assertion.get("config") or {})
    is_text = kind in _MEMBERS or kind.endswith(("contains-any", "contains-all"))
    if not is_text or (kind == "is-json" and value is not None):
        return None
    return {key: each for key, each in assertion.items() if key in ("value", "threshold")} | {
        "type": kind
    }
