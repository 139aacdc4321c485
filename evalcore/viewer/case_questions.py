"""The questions of a run's cases: read for the rows that a page shows, all of them for a search."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from evalcore.model.run import Plan
from evalcore.report.view import question_of
from evalcore.storage.runs import StoredRun


class CaseQuestions:
    """The beginnings of the inputs of a run, by the number of the case in the plan."""

    def __init__(self, run: StoredRun, plan: Plan) -> None:
        self._run, self._plan = run, plan
        self._read: dict[int, str | None] = {}

    def of_cases(self, numbers: Collection[int]) -> Mapping[int, str | None]:
        """Return the questions of some cases; each part of the plan is decompressed once."""
        parts: dict[int, set[int]] = {}
        for number in numbers:
            if number not in self._read:
                part, position = divmod(number, self._plan.part_cases)
                parts.setdefault(part, set()).add(position)
        for part, positions in parts.items():
            first = part * self._plan.part_cases
            inputs = self._run.inputs(part, positions)
            for position, value in zip(sorted(positions), inputs, strict=False):
                self._read[first + position] = question_of(value)
        return {number: self._read.get(number) for number in numbers}

    def all(self) -> Iterator[str | None]:
        """Yield the questions of all cases in the order of the plan."""
        for part in range(self._plan.parts):
            yield from map(question_of, self._run.inputs(part))
