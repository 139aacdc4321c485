"""The given answer of a row: its column `output`."""

from __future__ import annotations

from typing import Any

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.targets.case_messages import json_text


def move_output(row: dict[str, Any], loc: Loc, problems: Problems) -> None:
    """Put the column `output` where a test has its given answer; null is no answer."""
    output = row.pop("output")
    if output is None:
        return
    if "fixtures" in row:
        problems.add((*loc, "output"), "is given here and as 'fixtures'; remove one of them")
        return
    row["fixtures"] = {"output": text_of(output)}


def text_of(value: Any) -> str:
    """Return a foreign value as text: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json_text(value)
    except ValueError:  # a number that JSON does not have
        return str(value)
