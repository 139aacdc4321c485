"""What Prefect's client has not sent to its server yet: events of task runs, and log records."""

from __future__ import annotations

import logging
import time

from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker


def send_unsent(within_s: float) -> None:
    """Return when the server has it all, or after so many seconds.

    What was not sent by then is lost for Prefect's history, whose client would repeat it for
    minutes when the process exits.
    """
    until = time.monotonic() + within_s
    for service in (EventsWorker, APILogWorker):
        left_s = max(0.0, until - time.monotonic())
        service.drain_all(timeout=left_s)


def silence_log_handlers() -> None:
    """Let no handler print that it could not send a record: the process is about to end."""
    logging.raiseExceptions = False
