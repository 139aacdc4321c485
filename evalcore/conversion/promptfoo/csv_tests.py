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
_EXPECTED: Final = re.compile(
    r"^(?P<kind>(?:not-)?[a-z]+(?:-[a-z]+)*)(?:\((?P<threshold>\d+(?:\.\d+)?)\))?"
    r"(?::(?P<value>.*))?$",
    re.DOTALL,
)
_OTHERS: Final = (
    "is-xml",
    "contains-xml",
    "is-sql",
    "contains-sql",
    "is-html",
    "contains-html",
    "is-refusal",
    "perplexity",
    "perplexity-score",
    "answer-relevance",
    "classifier",
    "moderation",
    "webhook",
    "context-faithfulness",
    "context-recall",
    "context-relevance",
    "gleu",
    "meteor",
    "pi",
    "is-valid-openai-tools-call",
    "is-valid-openai-function-call",
    "guardrails",
    "select-best",
)


def test_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the test of a row: its variables, and what the columns `__NAME` say."""
    variables: dict[str, Any] = {}
    options: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    test: dict[str, Any] = {"vars": variables, "options": options, "metadata": metadata}
    asserts = []
    for column, cell in row.items():
        key, value = column.strip(), str(cell or "")
        if key.startswith("__expected"):
            if value.strip():
                asserts.append(assertion_of_text(value.strip()))
        elif key in ("__prefix", "__suffix"):
            options[key.removeprefix("__")] = value
        elif key.startswith("__metadata:"):
            metadata |= _metadata(key.removeprefix("__metadata:"), value)
        elif key == "__threshold":
            test |= {"threshold": float(value)} if value.strip() else {}
        elif key in ("__description", "__metric", "__providerOutput"):
            test |= {key.removeprefix("__"): value} if value else {}
        elif not key.startswith("__"):
            variables[key] = value
    metric = test.pop("metric", None)
    test["assert"] = [each | ({"metric": metric} if metric else {}) for each in asserts]
    return test


def _metadata(name: str, value: str) -> dict[str, Any]:
    if not value.strip():
        return {}
    if name.endswith("[]"):
        return {name[:-2]: [each.strip() for each in re.split(r"(?<!\\),", value)]}
    return {name: value}


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
        return {"type": kind, "value": [each.strip() for each in (value or "").split(",")]}
    assertion: dict[str, Any] = {"type": kind}
    if value is not None:
        assertion["value"] = value.strip()
    if bare in _WITH_THRESHOLD:
        threshold = match["threshold"]
        assertion["threshold"] = float(threshold) if threshold else _WITH_THRESHOLD[bare]
    return assertion
