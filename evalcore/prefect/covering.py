"""What leaves for Prefect's server beside states and artifacts: log records and exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from evalcore.redaction.redactor import cover_exception, redact_log_records


@contextmanager
def covered() -> Iterator[None]:
    """Let no secret stand in what Prefect logs and in what is raised to it."""
    redact_log_records()
    try:
        yield
    except Exception as error:  # goes on to Prefect without its secrets
        cover_exception(error)
        raise
