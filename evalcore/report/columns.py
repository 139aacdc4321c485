"""Text in the cells of a terminal: cut to a width, set in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unicodedata import combining, east_asian_width


def width_of(text: str) -> int:
    """Return how many cells a terminal needs for a line of printable text."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def cut(text: str, width: int) -> str:
    """Return `text` if it fits into `width` cells, else its beginning and `…`."""
    # A character has at most two cells.
    if len(text) * 2 <= width or width_of(text) <= width:
        return text
    return f"{_head(text, width - 1)}…"


def _head(text: str, width: int) -> str:
    """Return the longest beginning of `text` that fits into `width` cells."""
    used = 0
    for index, character in enumerate(text):
        used += _cells(character)
        if used > width:
            return text[:index]
    return text


def wrap(text: str, width: int) -> Iterator[str]:
    """Yield the lines of at most `width` cells that a text needs, broken at spaces where possible.

    A word that is longer than a line is broken within; nothing is left out.
    """
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= width:
            line = joined
            continue
        if line:
            yield line
        line = word
        while width_of(line) > width:
            head = _head(line, width) or line[0]
            yield head
            line = line[len(head) :]
    yield line


def table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield rows with the first column left and the others right aligned.

    The first one is cut as far as its texts stay different.
    """
    widths = [max(width_of(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[0] = max(8, min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    names = {row[0] for row in rows}
    while len({cut(name, widths[0]) for name in names}) < len(names):
        widths[0] += 1
    for row in rows:
        first = cut(row[0], widths[0])
        cells = [first + " " * (widths[0] - width_of(first))]
        cells += [cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


def _cells(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
