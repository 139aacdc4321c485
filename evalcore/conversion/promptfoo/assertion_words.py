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
from evalcore.model.evidence_path import PRIMARY_PATH

Assertion = dict[str, Any]

_QUOTED: Final = re.compile(r'(".*?"|[^,]+)(?=\s*,|\s*$)')
_PART: Final = re.compile(r"\\k<\w+>|\\c[A-Za-z]|\\.|.", re.DOTALL)
# The letters that an escape of JavaScript gives a meaning; any other stands for itself.
_ESCAPES: Final = frozenset("dDwWsSbBnrtfvxu")
_CLASS_OPERATORS: Final = frozenset("[&~|")
_ONLY_PYTHON: Final = re.compile(r"^\(\?[aiLmsux]+\)")
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
    def read(written: Written) -> Assertion:
        if not written.text:
            raise NotTakenOverError("its 'value' is empty, which promptfoo refuses")
        return {"type": kind, "value": written.text}

    return read


def _listed(kind: str) -> Callable[[Written], Assertion]:
    def read(written: Written) -> Assertion:
        value = written.value
        if not isinstance(value, list):
            value = [
                each.strip().removeprefix('"').removesuffix('"')
                for each in _QUOTED.findall(written.text)
            ]
        return {"type": kind, "value": [str(script_text(each)) for each in value]}

    return read


def _equals(written: Written) -> Assertion:
    if isinstance(written.value, list | Mapping):
        return {"type": "equals", "value": written.value, "config": {"mode": "json"}}
    return {"type": "equals", "value": str(script_text(written.value))}


def _regex(written: Written) -> Assertion:
    """Return the pattern in Python's dialect: digits and words are ASCII, `$` is the very end."""
    if _ONLY_PYTHON.search(written.text):
        raise NotTakenOverError("the pattern is none of JavaScript's: it begins with flags")
    named = _GROUP.sub("(?P<", written.text)
    in_class, python = False, ""
    for part in _PART.findall(named):
        was_in_class = in_class
        in_class = (part == "[" or in_class) and part != "]"
        python += _python_part(part, in_class=was_in_class, has_names=named != written.text)
    python = f"(?a){python}" if re.search(r"\\[wdbWDB]", python) else python
    try:
        re.compile(python)
    except re.error as error:
        raise NotTakenOverError(f"the pattern is none of Python's: {error}") from error
    return {"type": "regex", "value": python}


def _python_part(part: str, *, in_class: bool, has_names: bool) -> str:
    """Return a part of a pattern of JavaScript (without its flag `u`) as Python writes it."""
    if part == "$":
        return "$" if in_class else r"\Z"
    if in_class and part in _CLASS_OPERATORS:
        return f"\\{part}"  # Python keeps `[[` and `&&` in a class for later use
    if part.startswith(r"\k<"):
        return f"(?P={part[3:-1]})" if has_names else part[1:]
    if part.startswith(r"\c") and len(part) == 3:
        return f"\\x{ord(part[2]) % 32:02x}"
    is_letter = len(part) == 2 and part[0] == "\\" and part[1].isalpha()
    return part[1] if is_letter and part[1] not in _ESCAPES else part


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
        if value is None or not str(value).strip():
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
    "similar:cosine": _graded("similar", 0.75),
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

_FIRST: Final = "the first JSON object or array of the output counts, in promptfoo any object"
_EMBEDDINGS: Final = (
    "embeddings are of the model text-embedding-3-small, unless the suite names another"
)
DIFFERENCES: Final[Mapping[str, str]] = {
    "bleu": "texts that are short or share few words have other scores than in promptfoo",
    "contains-json": _FIRST,
    "rouge-n": "words are compared in lower case and without punctuation, unlike in promptfoo",
    "similar": _EMBEDDINGS,
    "similar:cosine": _EMBEDDINGS,
}
"""What a type means here that it does not in promptfoo."""


def has_formats(schema: Any) -> bool:
    """Whether a JSON Schema asks for texts of a `format`, which promptfoo checks."""
    if isinstance(schema, Mapping):
        return isinstance(schema.get("format"), str) or any(map(has_formats, schema.values()))
    return isinstance(schema, list) and any(map(has_formats, schema))


_TEST_FILE_WORDS: Final = (
    *("contains", "contains-any", "contains-all", "icontains", "icontains-any", "icontains-all"),
    *("latency", "cost", "similar"),
)
# Test files have these words, too, with other rules: trimmed texts, ECMAScript's patterns.
_OTHER_RULES: Final = (*_TEST_FILE_WORDS, "equals", "starts-with", "ends-with", "regex", "is-json")


def as_member(assertion: Assertion) -> Assertion:
    """Return an assertion as a member of a composite.

    Members are read by the rules of test files where those have the type and no path is written.
    """
    kind = str(assertion["type"]).removeprefix("not-")
    member = {key: value for key, value in assertion.items() if key != "metric"}
    if "path" not in member and kind == "llm_judge":
        member = _grader(member)
    is_plain = kind in _TEST_FILE_WORDS and assertion.get("value", "x") not in ("", [])
    if "path" in member or not (is_plain or kind == "llm_judge"):
        return {"path": PRIMARY_PATH, **member} if kind in _OTHER_RULES else member
    negated = {"negate": True} if assertion["type"].startswith("not-") else {}
    return member | {"type": str(member["type"]).removeprefix("not-")} | negated


def _grader(judge: Assertion) -> Assertion:
    grader = {"type": "llm-grader", "prompt": judge["criteria"]}
    if judge.get("min_score") is not None:
        grader["threshold"] = judge["min_score"]
    rest = {key: judge[key] for key in ("name", "weight") if key in judge}
    return grader | rest | (judge.get("config") or {})
