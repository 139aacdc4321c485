"""Which fields that `field-accuracy` compares no case's expected output has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evalcore.errors import LoadError, Problem
from evalcore.model.suite import Case


class ReferenceFields:
    """The fields that a suite's assertions compare; costs nothing where none does."""

    def __init__(self) -> None:
        self._missing: set[str] = set()
        self._present: set[str] = set()
        self._required: set[str] = set()

    def compare(self, fields: Mapping[str, bool]) -> None:
        """Note the fields of an assertion, and which of them are required."""
        self._missing.update(path for path in fields if path not in self._present)
        self._required.update(path for path, required in fields.items() if required)

    def warnings(self, file: str, *, strict: bool) -> list[str]:
        """Return a warning of the optional fields that no case has; in strict mode raise it.

        What no case has is known once `absent` has looked.
        """
        skipped = sorted(self._missing - self._required)
        if not skipped:
            return []
        have = "has it" if len(skipped) == 1 else "has them"
        names = ", ".join(map(repr, skipped))
        text = f"'field-accuracy' skips {names}: no test's 'expected_output' {have}"
        if strict:
            raise LoadError((Problem(file, None, "", text),))
        return [text]

    def note(self, case: Case) -> None:
        """Note the fields that the case's expected output has."""
        if not self._missing:
            return
        from evalcore.checks.fields import expected_object
        from evalcore.checks.json import ABSENT, value_at

        expected = expected_object(case.expected_output)
        present = {path for path in self._missing if value_at(expected, path) is not ABSENT}
        self._present |= present
        self._missing -= present

    def absent(self, cases: Iterable[Case]) -> tuple[str, ...]:
        """Return the fields that no case has, sorted; `cases` are those that were kept.

        They are looked through once more, because an assertion may stand after the case that has
        its field.
        """
        for case in cases if self._missing else ():
            self.note(case)
            if not self._missing:
                break
        return tuple(sorted(self._missing))
