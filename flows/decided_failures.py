"""A failed gate is a decision: Prefect's engine logs its state as an unexpected exception.

Prefect's engine asks a flow that has returned a state for its result, and a state that is not
`Completed` raises. The record of that has a traceback of Prefect's own and nothing of the flow.
"""

from __future__ import annotations

import logging

from prefect.exceptions import CancelledRun, FailedRun
from prefect.logging import get_logger

_LOGGER = "flow_runs"
_MESSAGE = "Engine execution exited with unexpected exception"


def log_decisions_without_traceback() -> None:
    """Keep the record of a state that the flow itself returned out of its flow run's log."""
    get_logger(_LOGGER).addFilter(is_no_decision)


def is_no_decision(record: logging.LogRecord) -> bool:
    """Whether a record says something else than that a flow has returned a state."""
    error = record.exc_info[1] if record.exc_info else None
    # What a flow raises is logged with its own type.
    return record.msg != _MESSAGE or not isinstance(error, FailedRun | CancelledRun)
