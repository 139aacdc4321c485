"""What the worker processes of a run's own Dask cluster load before their first task."""

from __future__ import annotations

import signal

import flows.tasks  # noqa: F401 - else the first task waits for its imports


def dask_setup(_worker: object) -> None:
    """Ignore Ctrl-C, which a terminal sends to these processes, too; the run's process ends them.

    The signal is blocked until here (`clusters`). A handler is no part of the programs that a
    suite starts, an ignored or a blocked signal is.
    """
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
