"""Ids that must be unique in a suite: of its cases, its variants, its targets, its labels."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems


class UniqueIds:
    """Remembers where each id stands first, and notes every further one.

    Of an id whose line costs nothing only the line is kept: a suite may have a million.
    """

    def __init__(self, message: str, key: str = "id") -> None:
        """Take the message of a duplicate, `{}` standing for the id, and the key of the ids."""
        self._message = message
        self._key = key
        self._first_file: Problems | None = None
        # The line or the path of each id; with its collector if that is not the first one.
        self._positions: dict[str, Any] = {}

    @property
    def names(self) -> Collection[str]:
        """The ids so far."""
        return self._positions.keys()

    def note(self, name: object, loc: Loc, problems: Problems, *, key: str | None = None) -> None:
        """Remember the id of what stands at `loc`; note it if another has it.

        What is no text or empty is a mistake of its shape, and no id. `key` is that of this id
        where it is not that of the others.
        """
        if not isinstance(name, str) or not name:
            return
        if name in self._positions:
            message = self._message.format(name) + self._first_place(name, problems)
            problems.add((*loc, key or self._key), message)
            return
        position: Any = problems.locate(loc) if problems.cheap else (*loc, key or self._key)
        if problems is not self._first_file:
            self._first_file = self._first_file or problems
            position = (problems, position)
        self._positions[name] = position

    def _first_place(self, name: str, problems: Problems) -> str:
        """Return ` (first at line 3 of other.yaml)`, as far as it is known."""
        position = self._positions[name]
        foreign = isinstance(position, tuple) and position[:1] and isinstance(position[0], Problems)
        collector: Any
        collector, position = position if foreign else (self._first_file, position)
        line = position if collector.cheap else collector.locate(position)
        other = "" if collector.file == problems.file else f" of {collector.file}"
        return f" (first at line {line}{other})" if line else other and f" (first{other})"
