"""A run of saved evals that an orchestrator's workers execute; the service watches the store.

If they cannot, the service executes what is left itself: the store has what is committed, and
nothing of that is executed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from evalcore.errors import RunConflictError
from evalcore.model.run import State
from evalcore.pipeline.executors import Runner, RunnerAwayError, Stage
from evalcore.pipeline.states import cancel_run
from evalcore.service.execution.end_signals import EndSignals
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun

_LOOK_S: Final = 0.5
_ASK_S: Final = 2.0


def attend_submitted(
    run: StoredRun,
    settings: Settings,
    end_signals: EndSignals,
    runner: Runner,
    began: Callable[[], None],
) -> str | None:
    """Have a planned run executed by the runner's workers; return None once it is complete.

    `began` is called once a worker has begun it. Returns the reason if this process has to go on
    with it: no worker begins it within `settings.take_up_s`, the server does not answer, or the
    workers end without completing it. Stopped, it returns None and leaves the flow run alone.
    Raises `RunConflictError` if the orchestrator's user has cancelled it.
    """
    try:
        runner.submit(run)
    except RunnerAwayError as error:
        return str(error)
    return _Watch(run, settings, runner, began).until_ended(end_signals.is_stopped)


def cancel_submitted(run: StoredRun, runner: Runner) -> None:
    """Cancel a submitted run; the flow run notes it in the store if a worker has begun it."""
    runner.cancel(run)
    if runner.submission(run).stage is Stage.CANCELLED and not is_complete(run):
        cancel_run(run, now=datetime.now(UTC))


class _Watch:
    """The clocks of one submitted run: since when it waits, since when its server is away."""

    def __init__(
        self, run: StoredRun, settings: Settings, runner: Runner, began: Callable[[], None]
    ) -> None:
        self._run, self._settings, self._runner = run, settings, runner
        self._began = began
        self._submitted_at = time.monotonic()
        self._away_at: float | None = None
        self._committed = 0

    def until_ended(self, stopped: Callable[[], bool]) -> str | None:
        """Return once the run is complete or stopped, or why this process has to go on with it."""
        ask_at = 0.0
        while not stopped() and not is_complete(self._run):
            if time.monotonic() >= ask_at:
                ask_at = time.monotonic() + _ASK_S
                reason = self._ask()
                if reason is not None:
                    # The flow run may have completed the run since it was looked at.
                    return None if is_complete(self._run) else reason
            time.sleep(_LOOK_S)
        return None

    def _ask(self) -> str | None:
        try:
            submission = self._runner.submission(self._run)
            self._away_at = None
            if submission.stage is Stage.WAITING:
                return self._withdrawn_if_late()
        except RunnerAwayError as error:
            return self._away_too_long(str(error))
        if submission.stage is Stage.RUNNING or is_complete(self._run):
            self._began()
            return None
        if submission.stage is Stage.CANCELLED:
            raise RunConflictError(submission.reason)
        return (
            f"{submission.reason}. Workers need the service's EVALCORE_PLAN_KEY and its store "
            "(docs/guides/deployment.md)"
        )

    def _withdrawn_if_late(self) -> str | None:
        take_up_s = self._settings.take_up_s
        if time.monotonic() - self._submitted_at < take_up_s or not self._runner.withdraw(
            self._run
        ):
            return None
        return f"no worker has begun it within {take_up_s:g} s (EVALCORE_TAKE_UP_S)"

    def _away_too_long(self, message: str) -> str | None:
        """Return the message once nothing was committed for long while the server was away."""
        now, committed = time.monotonic(), len(self._run.written_shards())
        if self._away_at is None or committed > self._committed:
            self._away_at, self._committed = now, committed
        return message if now - self._away_at >= self._settings.stall_s else None


def is_complete(run: StoredRun) -> bool:
    """Whether a run has its final state."""
    return run.manifest().state is State.COMPLETED
