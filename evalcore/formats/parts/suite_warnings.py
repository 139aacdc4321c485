"""Warnings about single cases: the first of a kind are kept, all are counted."""

from __future__ import annotations

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems

MAX_WARNINGS = 20


class CaseWarnings:
    """Collects one kind of warning; in strict mode each is a mistake instead."""

    def __init__(self, more: str, *, strict: bool) -> None:
        """Take what the last line says of those beyond `MAX_WARNINGS`, after `and 5 more`."""
        self._more = more
        self._strict = strict
        self._texts: list[str] = []
        self._count = 0

    def add(self, text: str, loc: Loc, problems: Problems) -> None:
        """Keep a warning about what stands at `loc`."""
        if self._strict:
            problems.add(loc, text)
            return
        self._count += 1
        if self._count <= MAX_WARNINGS:
            self._texts.append(text)

    @property
    def texts(self) -> list[str]:
        """The warnings, and how many more there are."""
        rest = self._count - len(self._texts)
        return [*self._texts, *([f"and {rest} more {self._more}"] if rest else [])]
