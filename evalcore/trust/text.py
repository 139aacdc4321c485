"""Text from somewhere else, made fit to be shown: no terminal control, no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# Controls except tab and newline, bidirectional overrides and isolates, and lone surrogates, which
# no terminal's encoding can carry.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_REDACTED: Final = "[redacted]"
_SHORTEST_SECRET: Final = 4


def sanitize_terminal(text: str) -> str:
    r"""Return `text` with every character that steers a terminal written as `\x1b` or `\u202e`.

    Tab and newline stay. The result can be encoded in UTF-8.
    """
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with `[redacted]` for each secret, a longer one before one that it contains.

    Values of fewer than four characters are left alone: replacing every `1` hides no secret.
    """
    found = sorted({item for item in secrets if len(item) >= _SHORTEST_SECRET}, key=len)
    if not found:
        return text
    pattern = "|".join(re.escape(item) for item in reversed(found))
    return re.sub(pattern, _REDACTED, text)


def tail_line(text: str, limit: int = 300) -> str:
    """Return the end of `text` as one line of at most `limit` characters; `…` marks a cut.

    Redact first: a secret that the cut halves is not found any more.
    """
    # Four times the limit: runs of white space shrink below.
    line = " ".join(text[-4 * limit :].split())
    if len(line) <= limit and len(text) <= 4 * limit:
        return line
    return "…" + line[-(limit - 1) :]
