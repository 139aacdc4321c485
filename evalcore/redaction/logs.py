"""Log records of other packages without secrets: an orchestrator sends them to its server."""

from __future__ import annotations

import logging
from typing import Any, Final

from evalcore.redaction.exceptions import cover_exception
from evalcore.redaction.redactor import PROCESS

_MARK: Final = "_evalcore_redacts"


def redact_log_records() -> None:
    """Let every log record of this process pass the redactor when it is made; calls may repeat."""
    make = logging.getLogRecordFactory()
    if hasattr(make, _MARK):
        return

    def redacted(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        _cover(record)
        return record

    setattr(redacted, _MARK, True)
    logging.setLogRecordFactory(redacted)


def _cover(record: logging.LogRecord) -> None:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - foreign arguments; logging reports them itself
        return
    covered = PROCESS.message(text)
    if covered != text:
        record.msg, record.args = covered, ()
    if record.exc_info and record.exc_info[1] is not None:
        cover_exception(record.exc_info[1])
