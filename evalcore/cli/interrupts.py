"""How commands end that run until they are stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

INTERRUPTED: Final = 130
"""The exit code of a command that Ctrl-C ended as it is meant to."""


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """End the command with `INTERRUPTED`, and without a message, on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
