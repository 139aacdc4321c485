"""Foreign texts of a page: cut so that a page stays small, with a word on what is left out."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from evalcore.report.view import shown_text

PAGE_CHARACTERS: Final = 120_000
_LEAST: Final = 200


class PageText(NamedTuple):
    """A text as a page has it. `omitted` counts the characters that are left out at its end."""

    text: str
    omitted: int = 0
    is_json: bool = False


class TextBudget:
    """The characters that the texts of one page may have in all; later texts get what is left."""

    def __init__(self, characters: int = PAGE_CHARACTERS) -> None:
        self._left = characters

    def cut(self, value: Any, most: int) -> PageText | None:
        """Return a text, or any other value as indented JSON, of at most `most` characters.

        None stays None. Where the page is full, 200 characters are left of each text.
        """
        text = shown_text(value)
        if text is None:
            return None
        beginning = text[: max(_LEAST, min(most, self._left))]
        self._left -= len(beginning)
        return PageText(beginning, len(text) - len(beginning), is_json=not isinstance(value, str))
