"""Gates require cases that the suite has."""

from __future__ import annotations

from collections.abc import Iterable

from evalcore.gates.builtin import RequiredCases
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import suggest
from evalcore.model.suite import Policy

_MAX_LISTED = 20


def check_required_cases(
    policy: Policy, case_ids: Iterable[str], problems: Problems, loc: Loc = ("evalcore", "gates")
) -> None:
    """Note each case that a gate requires and that is not among the suite's `case_ids`."""
    ids: frozenset[str] | None = None
    for index, gate in enumerate(policy.gates):
        for case_id in gate.params["case_ids"] if gate.gate == RequiredCases.gate else ():
            ids = frozenset(case_ids) if ids is None else ids
            if case_id not in ids:
                message = f"gate 'required_cases': no case has the id '{case_id}'."
                problems.add((*loc, index), message + suggest(case_id, ids, most=_MAX_LISTED))
