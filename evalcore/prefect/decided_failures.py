"""What Prefect's engine logs of the end of a flow run that is not so.

A failed gate is a decision. Prefect's engine asks a flow that has returned a state for its result,
and a state that is not `Completed` raises. The record of that has a traceback of Prefect's own and
nothing of the flow.

Of a flow run that is cancelled the engine says last, as an error, that it has finished in the state
in which the engine last saw it, which is `Running`.
"""

from __future__ import annotations

import logging

from prefect.exceptions import CancelledRun, FailedRun
from prefect.logging import get_logger

_LOGGER = "flow_runs"
_MESSAGE = "Engine execution exited with unexpected exception"
_UNFINISHED = "Finished in state Running()"


def log_decisions_without_traceback() -> None:
    """Keep records of the engine that are not so out of the flow run's log."""
    get_logger(_LOGGER).addFilter(is_kept)


def is_kept(record: logging.LogRecord) -> bool:
    """Whether a record says something else than a returned state's error, or an end in Running."""
    if record.msg == _UNFINISHED:
        return False
    error = record.exc_info[1] if record.exc_info else None
    # What a flow raises is logged with its own type.
    return record.msg != _MESSAGE or not isinstance(error, FailedRun | CancelledRun)
