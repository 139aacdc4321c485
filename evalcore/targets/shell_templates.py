"""Shell commands with placeholders, whose values are never read as shell code."""

from __future__ import annotations

import re
from collections.abc import Callable

# What stands for a placeholder, by its name and the quote around it ("" if there is none).
Reference = Callable[[str, str], str]

_REFERENCES = {"": '"${%s}"', '"': "${%s}", "'": "'\"${%s}\"'"}


def variable_reference(variable: str, quote: str) -> str:
    """Return what a shell reads as the value of the variable, inside of that quote."""
    return _REFERENCES[quote] % variable


def shell_command(text: str, placeholder: re.Pattern[str], reference: Reference) -> str:
    """Return the command with a reference to a variable in the place of each placeholder.

    What a variable holds is never read as shell code, wherever it stands; a quoted value would be,
    where the placeholder already stands in quotes, backticks or a here-document.
    """
    parts: list[str] = []
    quote = ""
    at = 0
    while at < len(text):
        match = placeholder.match(text, at)
        if match is not None:
            parts.append(reference(match[1], quote))
            at = match.end()
            continue
        step = 2 if text[at] == "\\" and quote != "'" else 1
        if text[at] in "'\"" and quote in ("", text[at]):
            quote = "" if quote else text[at]
        parts.append(text[at : at + step])
        at += step
    return "".join(parts)
