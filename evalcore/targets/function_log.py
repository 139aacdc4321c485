"""The logger that functions of suites get: lines on standard error with the ids of their item."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final

NAME: Final = "evalcore.target"
FunctionLogger = logging.LoggerAdapter[logging.Logger]


def function_logger(ids: Mapping[str, object]) -> FunctionLogger:
    """Return the logger `evalcore.target` with these ids in each line.

    A process that has set up no logging writes lines of level `info` and above to standard error.
    """
    logger = logging.getLogger(NAME)
    if not logger.hasHandlers():
        logger.addHandler(_StderrHandler())
        logger.setLevel(logging.INFO)
    return logging.LoggerAdapter(logger, {"item": dict(ids)})


class _StderrHandler(logging.Handler):
    """Writes each record as a line of evalcore's own log: secrets masked, long texts cut."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; a stream that is closed loses it."""
        from evalcore.observability.log import log_line

        try:
            fields = {**getattr(record, "item", {}), "message": self.format(record)}
            line = log_line(record.levelname.lower(), "target.log", fields, as_json=False)
            sys.stderr.write(f"{line}\n")
        except (OSError, ValueError, TypeError):
            self.handleError(record)
