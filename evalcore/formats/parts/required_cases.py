"""Gates require cases that the suite has."""

from __future__ import annotations

from collections.abc import Iterable

from evalcore.formats.parts.load_options import GATES_LOC
from evalcore.gates.builtin import RequiredCases
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import suggest
from evalcore.model.suite import Policy

_MAX_LISTED = 20


def check_required_cases(
    policy: Policy, known: Iterable[str], problems: Problems, loc: Loc = GATES_LOC
) -> None:
    """Note each case that a gate requires and that is not among the `known` ids of the suite."""
    ids: frozenset[str] | None = None
    for index, gate in enumerate(policy.gates):
        for case_id in gate.params["case_ids"] if gate.gate == RequiredCases.gate else ():
            ids = frozenset(known) if ids is None else ids
            if case_id not in ids:
                message = f"gate 'required_cases': no case has the id '{case_id}'."
                problems.add((*loc, index), message + suggest(case_id, ids, most=_MAX_LISTED))
