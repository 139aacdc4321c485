"""Custom gates: the user's function of the report decides, called once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import orjson

from evalcore.declared.parameter_types import FUNCTION, MaybeText
from evalcore.declared.parameters import REQUIRED, Key
from evalcore.gates.gate import Gate
from evalcore.model.gate import GateOutcome, GateResult

_EXPECTED = "return True or False, (passed, message), or {'passed' or 'outcome', 'message'}"


def _refuse(reference: str) -> Callable[..., Any]:
    raise LookupError(f"'{reference}' cannot be called here")


@dataclass(frozen=True)
class CustomGate(Gate, example="module:function"):
    """[Your function](#a-gate-of-your-own) returns it.

    In Python `fn` may be the function itself.
    """

    name: MaybeText = None
    description: MaybeText = None
    fn: Annotated[str | Callable[..., Any], FUNCTION, Key("callable")] = REQUIRED

    @property
    def result_name(self) -> str:
        """Its own name, else the function's."""
        return self.name or str(self.fn)

    def call(self, functions: GateFunctions) -> GateResult:
        """Return what the function decides; an exception of it fails the gate."""
        name = self.result_name
        try:
            if functions.elsewhere is not None:
                decided = functions.elsewhere(self, functions.report())
                if decided is not None:
                    return decided
            answer = functions.resolve(str(self.fn))(functions.report())
            return _stored(_result(name, self.description, answer))
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a user's function)
            message = f"{type(error).__name__}: {error}"
            raised = {"raised": type(error).__name__}
            return _stored(GateResult(name, GateOutcome.FAIL, message, raised))


DecideElsewhere = Callable[[CustomGate, Mapping[str, Any]], GateResult | None]
"""Decides a gate over the report; None if its function exists in this process only."""


@dataclass(frozen=True, slots=True)
class GateFunctions:
    """How custom gates reach their functions.

    `resolve` returns the function of a reference (`module:function`, or the name of an object of
    the Python API); it may raise. `report` returns the argument of the functions: the report's JSON
    values without its gates. `stored` are results by the gates' indices: a decided run is shown
    without calling a function again. `elsewhere` decides in another process.
    """

    resolve: Callable[[str], Callable[..., Any]] = _refuse
    report: Callable[[], Mapping[str, Any]] = dict
    stored: Mapping[int, GateResult] = field(default_factory=dict)
    elsewhere: DecideElsewhere | None = None


def _stored(result: GateResult) -> GateResult:
    """Return the result as a report can hold it: halves of surrogate pairs are escaped."""
    message = result.message.encode("utf-8", "backslashreplace").decode("utf-8")
    try:
        orjson.dumps(result.details)
    except TypeError as error:
        message = f"TypeError: its details are no JSON: {error}"
        return GateResult(result.name, GateOutcome.FAIL, message, {"raised": "TypeError"})
    return replace(result, message=message)


def _result(name: str, description: str | None, answer: object) -> GateResult:
    if isinstance(answer, GateResult):
        return replace(answer, name=name)
    message: object = None
    details: object = {}
    if isinstance(answer, tuple) and len(answer) == 2:
        answer, message = answer
    elif isinstance(answer, Mapping):
        message, details = answer.get("message"), answer.get("details") or {}
        answer = answer.get("outcome", answer.get("passed"))
    outcome = _outcome(answer)
    if outcome is None or not isinstance(details, Mapping):
        text = f"returned {type(answer).__name__} {str(answer)[:80]!r}; {_EXPECTED}"
        return GateResult(name, GateOutcome.FAIL, text, {})
    text = str(message) if message else description or f"the function says {outcome}"
    return GateResult(name, outcome, text, dict(details))


def _outcome(answer: object) -> GateOutcome | None:
    if isinstance(answer, bool):
        return GateOutcome.PASS if answer else GateOutcome.FAIL
    if isinstance(answer, str) and answer in set(GateOutcome):
        return GateOutcome(answer)
    return None
