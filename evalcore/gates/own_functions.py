"""Gates that somebody else wrote: a function of the report, called once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalcore.model.gate import GateOutcome, GateResult

_EXPECTED = "return True or False, (passed, message), or {'passed' or 'outcome', 'message'}"


def _refuse(reference: str) -> Callable[..., Any]:
    raise LookupError(f"'{reference}' cannot be called here")


DecideElsewhere = Callable[[Mapping[str, Any], Mapping[str, Any]], GateResult | None]
"""Decides with a gate's parameters and the report; None if its function is only here."""


@dataclass(frozen=True, slots=True)
class CustomGates:
    """What custom gates need of the outside.

    `resolve` gives the function of a reference (`module:function`, or a name that the caller of
    the Python API gave an object for); it may raise. `report` makes the argument of the functions:
    the report's JSON values without its gates. `known` are results by the gates' places, from the
    store: a decided run is shown without calling anybody's function again. `elsewhere` decides
    in another process.
    """

    resolve: Callable[[str], Callable[..., Any]] = _refuse
    report: Callable[[], Mapping[str, Any]] = dict
    known: Mapping[int, GateResult] = field(default_factory=dict)
    elsewhere: DecideElsewhere | None = None


def custom(params: Mapping[str, Any], gates: CustomGates) -> GateResult:
    """Call the function and return what it decided; one that raises fails with its exception."""
    name, about = params["name"] or params["callable"], params["description"]
    try:
        if gates.elsewhere is not None:
            decided = gates.elsewhere(params, gates.report())
            if decided is not None:
                return decided
        answer = gates.resolve(params["callable"])(gates.report())
        return _result(name, about, answer)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (somebody's function may do anything)
        message = f"{type(error).__name__}: {error}"
        return GateResult(name, GateOutcome.FAIL, message, {"raised": type(error).__name__})


def _result(name: str, about: str | None, answer: object) -> GateResult:
    if isinstance(answer, GateResult):
        return GateResult(name, answer.outcome, answer.message, answer.details)
    message: object = None
    details: object = {}
    if isinstance(answer, tuple) and len(answer) == 2:
        answer, message = answer
    elif isinstance(answer, Mapping):
        message, details = answer.get("message"), answer.get("details") or {}
        answer = answer.get("outcome", answer.get("passed"))
    outcome = _outcome(answer)
    if outcome is None or not isinstance(details, Mapping):
        said = f"returned {type(answer).__name__} {str(answer)[:80]!r}; {_EXPECTED}"
        return GateResult(name, GateOutcome.FAIL, said, {})
    said = str(message) if message else about or f"the function says {outcome}"
    return GateResult(name, outcome, said, dict(details))


def _outcome(answer: object) -> GateOutcome | None:
    if isinstance(answer, bool):
        return GateOutcome.PASS if answer else GateOutcome.FAIL
    if isinstance(answer, str) and answer in set(GateOutcome):
        return GateOutcome(answer)
    return None
