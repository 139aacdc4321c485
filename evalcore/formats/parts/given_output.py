"""The given answer of a row: its column `output`."""

from __future__ import annotations

from typing import Any

from evalcore.mistakes.foreign_text import value_text
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems


def move_output(row: dict[str, Any], loc: Loc, problems: Problems) -> None:
    """Put the column `output` where a test has its given answer; null is no answer."""
    output = row.pop("output")
    if output is None:
        return
    if "fixtures" in row:
        problems.add((*loc, "output"), "is given here and as 'fixtures'; remove one of them")
        return
    row["fixtures"] = {"output": value_text(output)}
