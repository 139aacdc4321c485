"""Where warnings about a run go that is planned or executed without a place for them."""

from __future__ import annotations

import sys

from evalcore.redaction.redactor import PROCESS


def warn_on_standard_error(message: str) -> None:
    """Write a warning to standard error, without secrets and without control characters."""
    from evalcore.trust.text import sanitize_terminal

    sys.stderr.write(f"{sanitize_terminal(PROCESS.message(message))}\n")
