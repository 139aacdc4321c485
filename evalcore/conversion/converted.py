"""What a file of another program becomes: cases, targets, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evalcore.mistakes.foreign_text import one_line
from evalcore.model.suite import Format

DEFAULT_TARGET: Final = "default"
_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class ConvertedCase:
    """A case; `assertions` are written as the suite's format writes them.

    `output` is a recorded answer, with its measures in `metrics`; None: the target is asked.
    """

    id: str
    input: Any
    assertions: Sequence[Mapping[str, Any]]
    expected_output: Any = None
    output: Any = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Converted:
    """A suite in the making.

    `targets` answer, each as a variant; without any, the file says nothing about what answers.
    `prompts` are labels by the keys of texts in the cases' inputs: each makes a variant of its own.
    `judges` are targets that only grade. `module` is the text of the Python module that callables
    of the form `MODULE:function` name, with `MODULE` as a placeholder. It imports `imported_files`,
    paths from the folder of the file that was read.
    """

    form: Format
    name: str
    cases: Sequence[ConvertedCase]
    description: str | None = None
    targets: Sequence[Mapping[str, Any]] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    judges: Sequence[Mapping[str, Any]] = ()
    section: Mapping[str, Any] = field(default_factory=dict)
    module: str | None = None
    imported_files: Sequence[str] = ()


MODULE: Final = "<module>"
"""Stands in callables for the name of the module that is written beside the suite."""


class VariableText(str):
    """A text with a variable that the suite reads when it is loaded."""

    __slots__ = ()


class Notes:
    """What has no counterpart, each reason and each position of it once."""

    def __init__(self) -> None:
        self._positions: dict[str, dict[str, None]] = {}

    def add(self, reason: str, position: str = "") -> None:
        """Note a reason; `position` is a path into the file, such as `tests[2].assert[0]`."""
        positions = self._positions.setdefault(one_line(reason), {})
        if position:
            positions[one_line(position)] = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The reasons in the order in which they came up, one a line."""
        return tuple(
            _line(reason, list(positions)) for reason, positions in self._positions.items()
        )


def note_default_judge(notes: Notes, judge: Mapping[str, Any], whose: str, at: str = "") -> None:
    """Note which model judges where the file names none, and what would name another."""
    notes.add(
        f"no model that grades is named: the judge is {judge['model']} of {judge['provider']}, "
        f"{whose} (target '{judge['name']}'; write another model there)",
        at,
    )


def _line(reason: str, positions: Sequence[str]) -> str:
    if not positions:
        return reason
    more = len(positions) - _LISTED
    listed = ", ".join(positions[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{listed}: {reason}"


def unique_id(wish: str, used_ids: Collection[str]) -> str:
    """Return an id that is not one of `used_ids`: the wish, or the wish with a number."""
    text = one_line(wish, 80) or "case"
    number, candidate = 2, text
    while candidate in used_ids:
        candidate, number = f"{text}-{number}", number + 1
    return candidate
