"""Text from somewhere else, made fit to be shown: no terminal control, no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from evalcore.redaction.redactor import PROCESS, redactor_of
from evalcore.wording import escape_character

# Controls except tab and newline, other line ends, bidirectional overrides and isolates, what has
# no width (joiners only beside ASCII: other scripts are written with them), tags, and lone
# surrogates, which no terminal's encoding can carry.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
# What services that run builds take for a command when it stands in a log, in any case of letters:
# `::error::…` at the beginning of a line, `##[…]`, `##vso[…]` and `##teamcity[…]` anywhere in it.
_LOG_COMMAND: Final = re.compile(
    r"^([^\S\n]*):(?=:[^\S\n]*[A-Za-z_-][^\n]*::)|#(?=#[^\S\n]*\w*\[)", re.MULTILINE
)
_LEAST_BEFORE: Final = 40


def sanitize_terminal(text: str) -> str:
    r"""Return `text` with every character that steers a terminal written as `\x1b` or `\u202e`.

    What a service that reads the log would obey begins with `\x3a` or `\x23` then. Tab and newline
    stay. The result can be encoded in UTF-8.
    """
    escaped = _UNPRINTABLE.sub(escape_character, text)
    return _LOG_COMMAND.sub(_inert, escaped) if "::" in escaped or "##" in escaped else escaped


def _inert(match: re.Match[str]) -> str:
    return "\\x23" if match[1] is None else f"{match[1]}\\x3a"


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with `[redacted]` for each secret, and for what this process knows.

    Values of fewer than four characters are left alone: replacing every `1` hides no secret.
    """
    return PROCESS.text(redactor_of(frozenset(secrets)).text(text))


def last_words(text: str, limit: int = 300) -> str:
    """Return the last line of what a program wrote, and after it the end of what stood before.

    A traceback's last line says the most; what is cut short to be shown still has it. One line of
    at most `limit` characters. Redact first.
    """
    before, _, last = text.rstrip()[-4 * limit :].rpartition("\n")
    last = " ".join(last.split())
    room = limit - len(last) - len(" (before it: )")
    if not before.strip() or room < _LEAST_BEFORE:
        return tail_line(text, limit)
    return f"{last} (before it: {tail_line(before, room)})"


def tail_line(text: str, limit: int = 300) -> str:
    """Return the end of `text` as one line of at most `limit` characters; `…` marks a cut.

    Redact first: a secret that the cut halves is not found any more.
    """
    # Four times the limit: runs of white space shrink below.
    line = " ".join(text[-4 * limit :].split())
    if len(line) <= limit and len(text) <= 4 * limit:
        return line
    return "…" + line[-(limit - 1) :]
