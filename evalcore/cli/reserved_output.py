"""Standard output, kept for the report while other people's code runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress


@contextmanager
def reserved_stdout() -> Iterator[None]:
    """Let what is written to standard output go to standard error, by Python or below it.

    Programs that are started meanwhile inherit it so.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        descriptor = os.dup(1)
    except OSError:  # closed by the caller: there is nothing to keep
        with redirect_stdout(sys.stderr):
            yield
        return
    try:
        with suppress(OSError):
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        with suppress(OSError, ValueError):
            sys.__stdout__.flush() if sys.__stdout__ is not None else None
        os.dup2(descriptor, 1)
        os.close(descriptor)
