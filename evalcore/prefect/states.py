"""From a run's decision to the state that Prefect shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from evalcore.errors import EvalError, ExitCode, LoadError, NotAllowedError
from evalcore.model.run import Decision
from evalcore.redaction.redactor import PROCESS
from evalcore.report.document import Report
from evalcore.report.escape import inert_message
from evalcore.wording import counted

GATE_FAILED = "GateFailed"
INCONCLUSIVE = "Inconclusive"
ERRORS = "Errors"
SUITE_INVALID = "SuiteInvalid"
REFUSED = "Refused"
NOT_ALLOWED = "NotAllowed"

# As several suites' exit codes are weighed, and what was never run before what could not be run.
WORST_FIRST = (GATE_FAILED, SUITE_INVALID, NOT_ALLOWED, REFUSED, ERRORS, INCONCLUSIVE)

_MAX_MESSAGE = 4_000


def decided(report: Report) -> State[Any]:
    """Return the state of a decided run; it names the gates that did not pass."""
    if report.decision is Decision.PASS:
        return Completed(message=outcome(report))
    names = {Decision.FAIL: GATE_FAILED, Decision.INCONCLUSIVE: INCONCLUSIVE}
    name = names.get(report.decision, ERRORS)
    return _failed(name, gates_text(report) or "the counts do not add up")


def outcome(report: Report) -> str:
    """Return the run's score and pass rate in words."""
    summary = report.summary
    score = "no score" if summary.score is None else f"score {summary.score:.4f}"
    return (
        f"{score}, pass rate {summary.pass_rate:.4f} "
        f"({summary.passed_cases} of {counted(summary.cases, 'case')})"
    )


def gates_text(report: Report) -> str:
    """Return the messages of the gates that did not pass."""
    return "; ".join(gate.message for gate in report.gates if not gate.passed)


def refused(error: EvalError) -> State[Any]:
    """Return the state of a run that came to no decision, with the error's own words."""
    if isinstance(error, LoadError):
        return _failed(SUITE_INVALID, str(error))
    if isinstance(error, NotAllowedError):
        return _failed(NOT_ALLOWED, str(error))
    name = REFUSED if error.exit_code is ExitCode.USAGE else ERRORS
    return _failed(name, str(error))


def worst(ended: Sequence[tuple[str, State[Any]]]) -> State[Any]:
    """Return the state of several suites together: the worst one's name, and all that is wrong.

    `ended` are suites with their states; one that passed is `Completed`.
    """
    wrong = [(suite, state) for suite, state in ended if not state.is_completed()]
    if not wrong:
        return Completed(message=f"{len(ended)} of {counted(len(ended), 'suite')} passed")
    names = {named(state) for _, state in wrong}
    first = next(name for name in WORST_FIRST if name in names)
    # Their messages are escaped already.
    reasons = "; ".join(
        f"{_one_line(suite)}: {named(state)}: {state.message}" for suite, state in wrong
    )
    return _cut(first, f"{len(wrong)} of {counted(len(ended), 'suite')} did not pass: {reasons}")


def named(state: State[Any]) -> str:
    """Return which of the names of this module a state that is not `Completed` has.

    A run that ended in another way (a crash, a stop) has no decision.
    """
    return state.name if state.name in WORST_FIRST else ERRORS


def broken(error: Exception) -> State[Any]:
    """Return the state of a suite that something other than this project ended."""
    return _failed(ERRORS, f"{type(error).__name__}: {error}")


def stopped(run_id: str) -> State[Any]:
    """Return the state of a run that was stopped."""
    return Cancelled(message=f"stopped; `evalcore run --resume {run_id}` goes on")


def _one_line(message: str) -> str:
    """Return a message without secrets, as plain text that is no Markdown either."""
    return inert_message(PROCESS.message(message))


def _failed(name: str, message: str) -> State[Any]:
    return _cut(name, _one_line(message))


def _cut(name: str, message: str) -> State[Any]:
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    return Failed(name=name, message=message)
