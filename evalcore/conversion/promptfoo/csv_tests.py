"""Rows of a table of tests: variables, and columns whose names begin with `__`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from evalcore.conversion.promptfoo.assertion_words import WORDS

_LISTS: Final = ("contains-any", "contains-all", "icontains-any", "icontains-all")
_WITH_THRESHOLD: Final = {
    **dict.fromkeys(("cost", "latency", "levenshtein", "rouge-n", "starts-with"), 0.75),
    "similar": 0.8,
}
_PREFIXES: Final = {
    **dict.fromkeys(("javascript:", "fn:", "eval:"), "javascript"),
    **dict.fromkeys(("grade:", "llm-rubric:"), "llm-rubric"),
    "python:": "python",
}
_CONFIG: Final = re.compile(r"^__config:__expected(?P<number>[1-9]\d*)?:threshold$")
_MEMBER: Final = re.compile(r'\s*"(?P<quoted>(?:[^"]|"")*)"\s*(?:,|$)|(?P<plain>[^,]+)')
_NUMBER: Final = re.compile(r"^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$")
_EXPECTED: Final = re.compile(
    r"^(?P<kind>(?:not-)?[a-z]+(?:[-:][a-z\d]+)*?)(?:\((?P<threshold>\d+(?:\.\d+)?)\))?"
    r"(?::(?P<value>.*))?$",
    re.DOTALL,
)
# Types without a counterpart. What begins with none of all types is a text to equal.
_OTHERS: Final = (
    "agent-rubric",
    "answer-relevance",
    "classifier",
    "contains-html",
    "contains-sql",
    "contains-xml",
    "context-faithfulness",
    "context-recall",
    "context-relevance",
    "conversation-relevance",
    "finish-reason",
    "gleu",
    "guardrails",
    "human",
    "is-html",
    "is-refusal",
    "is-sql",
    "is-valid-function-call",
    "is-valid-openai-function-call",
    "is-valid-openai-tools-call",
    "is-xml",
    "max-score",
    "meteor",
    "moderation",
    "perplexity",
    "perplexity-score",
    "pi",
    "ruby",
    "search-rubric",
    "select-best",
    "similar:dot",
    "similar:euclidean",
    "skill-used",
    "tool-call-f1",
    "trace-error-spans",
    "trace-span-count",
    "trace-span-duration",
    "trajectory:goal-success",
    "trajectory:step-count",
    "trajectory:tool-args-match",
    "trajectory:tool-sequence",
    "trajectory:tool-used",
    "webhook",
)


def test_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the test of a row: its variables, and what the columns `__NAME` say."""
    variables: dict[str, Any] = {}
    options: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    test: dict[str, Any] = {"vars": variables, "options": options, "metadata": metadata}
    cells = {column.strip(): str(cell or "") for column, cell in row.items()}
    for key, value in cells.items():
        if key in ("__prefix", "__suffix"):
            options[key.removeprefix("__")] = value
        elif key.startswith("__metadata:"):
            metadata |= _metadata(key.removeprefix("__metadata:"), value)
        elif key == "__threshold":
            test |= _threshold(value)
        elif key in ("__description", "__providerOutput"):
            test |= {key.removeprefix("__"): value} if value else {}
        elif not key.startswith("__"):
            variables[key] = value
    test["assert"] = _assertions(cells)
    return test


def _assertions(cells: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the assertions of a row, with its metric and the thresholds in `__config:`."""
    asserts: list[dict[str, Any]] = []
    thresholds: dict[int, dict[str, float]] = {}
    for key, value in cells.items():
        if key.startswith("__expected") and value.strip():
            asserts.append(assertion_of_text(value.strip()))
        elif (match := _CONFIG.match(key)) is not None:
            thresholds[int(match["number"] or 1)] = _threshold(value)
    metric = {"metric": cells["__metric"]} if cells.get("__metric") else {}
    return [
        {**each, **metric, **thresholds.get(number, {})} for number, each in enumerate(asserts, 1)
    ]


def _threshold(cell: str) -> dict[str, float]:
    """Return the threshold in a cell; what is no number is none."""
    text = cell.strip()
    return {"threshold": float(text)} if _NUMBER.match(text) else {}


def _metadata(name: str, value: str) -> dict[str, Any]:
    if not value.strip():
        return {}
    if name.endswith("[]"):
        listed = re.split(r"(?<!\\),", value)
        return {name[:-2]: [each.strip().replace("\\,", ",") for each in listed]}
    return {name: value}


def _listed(text: str) -> list[str]:
    """Return the texts of a list with commas; a text in quotes may hold some."""
    listed = [match["quoted"] or match["plain"] or "" for match in _MEMBER.finditer(text)]
    return [member.replace('""', '"') for each in listed if (member := each.strip())]


def assertion_of_text(text: str) -> dict[str, Any]:
    """Return the assertion of a cell: `contains: x`, `similar(0.8): x`, else a text to equal."""
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            return {"type": kind, "value": text.removeprefix(prefix).strip()}
    if text.startswith("file://"):
        return {"type": "python" if ".py" in text else "javascript", "value": text}
    match = _EXPECTED.match(text)
    kind = match["kind"] if match else ""
    bare = kind.removeprefix("not-")
    if match is None or not (bare in WORDS or bare in _OTHERS):
        return {"type": "equals", "value": text}
    value = match["value"]
    if bare in _LISTS:
        return {"type": kind, "value": _listed(value or "")}
    assertion: dict[str, Any] = {"type": kind}
    if value is not None:
        assertion["value"] = value.strip()
    if bare in _WITH_THRESHOLD:
        threshold = match["threshold"]
        assertion["threshold"] = float(threshold) if threshold else _WITH_THRESHOLD[bare]
    return assertion
