"""Which records of Prefect's engine say that a flow has returned a state."""

from __future__ import annotations

import logging

import pytest
from prefect.exceptions import CancelledRun, FailedRun

from evalcore.prefect.decided_failures import is_kept

ENGINE = "Engine execution exited with unexpected exception"


def record(message: str, error: Exception | None) -> logging.LogRecord:
    raised = None if error is None else (type(error), error, None)
    return logging.LogRecord("prefect.flow_runs", logging.ERROR, "", 0, message, (), raised)


@pytest.mark.parametrize("error", [FailedRun("pass rate 0.5 < 1"), CancelledRun("stopped")])
def test_a_state_that_the_flow_has_returned_leaves_no_record(error: Exception) -> None:
    assert not is_kept(record(ENGINE, error))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        pytest.param(ENGINE, OSError("disk full"), id="what a flow raised"),
        pytest.param("Finished in state GateFailed", None, id="another record"),
        pytest.param("lane failed", FailedRun("lane"), id="a failed run of another flow"),
    ],
)
def test_every_other_record_stays(message: str, error: Exception | None) -> None:
    assert is_kept(record(message, error))


@pytest.mark.parametrize(("state", "kept"), [("Running()", False), ("Cancelled()", True)])
def test_no_flow_run_is_logged_as_finished_while_it_runs(state: str, kept: bool) -> None:
    assert is_kept(record(f"Finished in state {state}", None)) is kept
