"""How a terminal is written to: safe lines of its width, coloured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from evalcore.report.columns import cut, wrap

Line = tuple[str | None, str]
"""A colour or None, and the line."""

DEFAULT_WIDTH: Final = 160
_MOST_LINES: Final = 20


class Style(NamedTuple):
    """How a terminal is written to: `clean` makes foreign text one safe line; `width` in cells."""

    clean: Callable[[str], str]
    width: int = DEFAULT_WIDTH

    def line(self, text: str, colour: str | None = None) -> Line:
        """Return foreign text as a line that fits; the rest of it is cut."""
        return colour, cut(self.clean(text), self.width)

    def lines(
        self, text: str, colour: str | None = None, *, indent: int = 0, hanging: int = 0
    ) -> Iterator[Line]:
        """Yield foreign text that says what to do, over as many lines as it needs.

        `hanging` is added to the indent of the lines after the first. Of more than 20 lines the
        first 19 and the last one are kept: advice ends a message.
        """
        wrapped = list(wrap(self.clean(text), max(1, self.width - indent - hanging)))
        if len(wrapped) > _MOST_LINES:
            wrapped = [*wrapped[: _MOST_LINES - 1], "…", wrapped[-1]]
        for number, line in enumerate(wrapped):
            yield colour, " " * (indent + hanging * (number > 0)) + line
