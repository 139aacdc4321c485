"""From a run's decision to the state that Prefect shows."""

from __future__ import annotations

from typing import Any, assert_never

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from evalcore.errors import EvalError, ExitCode, LoadError
from evalcore.model.gate import Decision
from evalcore.report.document import Report

GATE_FAILED = "GateFailed"
INCONCLUSIVE = "Inconclusive"
ERRORS = "Errors"
SUITE_INVALID = "SuiteInvalid"
REFUSED = "Refused"

_MAX_MESSAGE = 4_000


def decided(report: Report) -> State[Any]:
    """Return the state of a decided run; it names the gates that did not pass."""
    match report.decision:
        case Decision.PASS:
            return Completed(message=outcome(report))
        case Decision.FAIL:
            return _failed(GATE_FAILED, gates_text(report) or "the counts do not add up")
        case Decision.INCONCLUSIVE:
            return _failed(INCONCLUSIVE, gates_text(report))
        case Decision.ERROR:
            return _failed(ERRORS, gates_text(report))
        case _:
            assert_never(report.decision)


def outcome(report: Report) -> str:
    """Return the run's score and pass rate in words."""
    summary = report.summary
    score = "no score" if summary.score is None else f"score {summary.score:.4f}"
    return (
        f"{score}, pass rate {summary.pass_rate:.4f} "
        f"({summary.passed_cases} of {summary.cases} cases)"
    )


def gates_text(report: Report) -> str:
    """Return the messages of the gates that did not pass."""
    return "; ".join(gate.message for gate in report.gates if not gate.passed)


def refused(error: EvalError) -> State[Any]:
    """Return the state of a run that came to no decision, with the error's own words."""
    if isinstance(error, LoadError):
        return _failed(SUITE_INVALID, str(error))
    name = REFUSED if error.exit_code is ExitCode.USAGE else ERRORS
    return _failed(name, str(error))


def stopped(run_id: str) -> State[Any]:
    """Return the state of a run that somebody stopped."""
    return Cancelled(message=f"stopped; `evalcore run --resume {run_id}` goes on")


def _failed(name: str, message: str) -> State[Any]:
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    return Failed(name=name, message=message)
