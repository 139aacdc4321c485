"""Which fields that `field-accuracy` compares no case's expected output has."""

from __future__ import annotations

from collections.abc import Iterable

from evalcore.model.suite import Case


class ReferenceFields:
    """The fields that a suite's assertions compare; costs nothing where none does."""

    def __init__(self) -> None:
        self._missing: set[str] = set()
        self._present: set[str] = set()

    def compare(self, paths: Iterable[str]) -> None:
        """Note the fields of an assertion."""
        self._missing.update(path for path in paths if path not in self._present)

    def note(self, case: Case) -> None:
        """Note the fields that the case's expected output has."""
        if not self._missing:
            return
        from evalcore.checks.field_accuracy import expected_object
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
