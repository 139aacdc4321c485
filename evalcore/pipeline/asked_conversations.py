"""Which executed conversation a case is graded on whose checks decide what is asked."""

from __future__ import annotations

from typing import Any, Final

from evalcore.model.identity import case_identity
from evalcore.model.run import Manifest
from evalcore.model.suite import Case
from evalcore.storage.runs import StoredRun

# An execution by the present checks may ask turns that the graded one did not.
_OTHER_CHECKS: Final = "asked_by_other_checks"


def is_asked_by_own_checks(run: Manifest) -> bool:
    """Whether the evidence of a run's items is what an execution by its checks would leave."""
    return _OTHER_CHECKS not in run.settings


class AskedConversations:
    """The conversations of a run that is graded again; they are read when the first is needed.

    Without a run there are none.
    """

    def __init__(self, run: StoredRun | None) -> None:
        self._run = run
        self._cases: dict[str, Case] | None = None
        self._by_other_checks = False

    @property
    def settings(self) -> dict[str, Any]:
        """The setting of a run that was graded by other checks than those that stopped it."""
        earlier = self._run is not None and not is_asked_by_own_checks(self._run.manifest())
        return {_OTHER_CHECKS: True} if earlier or self._by_other_checks else {}

    def asked_as(self, case: Case) -> Case | None:
        """Return the case of the run that asked the same by other checks; None if there is none."""
        if case.turns is None or self._run is None:
            return None
        if self._cases is None:
            plan = self._run.manifest().plan
            parts = (self._run.cases(number, plan) for number in range(plan.parts))
            self._cases = {each.id: each for part in parts for each in part if each.turns}
        executed = self._cases.get(case.id)
        if executed is None or case_identity(executed) == case_identity(case):
            return None
        if case_identity(executed, with_stops=False) != case_identity(case, with_stops=False):
            return None
        self._by_other_checks = True
        return executed
