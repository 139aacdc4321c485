"""Whether a document that was given as a suite is a file of another program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def program_of(value: Any) -> str | None:
    """Return the program whose file a document is, None if it is of none that is imported."""
    if isinstance(value, list):
        return _of_rows(_first(value))
    if not isinstance(value, Mapping):
        return None
    if "prompts" in value and not {"providers", "targets"}.isdisjoint(value):
        return "promptfoo"
    if not {"testCases", "testRunData"}.isdisjoint(value):
        return "DeepEval"
    run = value.get("eval")
    if isinstance(run, Mapping) and {"task", "model"} <= run.keys():
        return "Inspect AI"
    if "flow" not in value and "inputs" in _first(value.get("cases")):
        return "pydantic-evals"
    return None


def _of_rows(row: Mapping[str, Any]) -> str | None:
    if "input" in row and not {"retrieval_context", "actual_output"}.isdisjoint(row):
        return "DeepEval"
    if "input" in row and "target" in row:
        return "Inspect AI"
    if "inputs" in row and "outputs" in row:
        return "LangSmith"
    return "Braintrust" if "input" in row and "expected" in row else None


def _first(value: Any) -> Mapping[str, Any]:
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, Mapping) else {}
