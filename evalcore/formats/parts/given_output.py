"""What rows of JSON write in another form than tests: `output`, and ids that are numbers."""

from __future__ import annotations

from typing import Any

from evalcore.mistakes.foreign_text import value_text
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems


def name_by_number(row: dict[str, Any]) -> None:
    """Make the id of a row that is a whole number a text: exports have such ids."""
    if type(row.get("id")) is int:
        row["id"] = str(row["id"])


def move_output(row: dict[str, Any], loc: Loc, problems: Problems) -> None:
    """Put the column `output` where a test has its given answer; note one that is null."""
    output = row.pop("output")
    if output is None:
        message = "is null, which is no answer: leave it out, and the target is asked"
        problems.add((*loc, "output"), message)
        return
    if "fixtures" in row:
        problems.add((*loc, "output"), "is given here and as 'fixtures'; remove one of them")
        return
    row["fixtures"] = {"output": value_text(output)}
