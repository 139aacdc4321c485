"""The target `fixture`: the answer that the case itself gives."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.targets.work import Work


class FixtureOptions(BaseModel):
    """Options of a target of kind `fixture`: none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FixtureTarget:
    """Answers from the case's fixture and from nothing else."""

    def __init__(self, options: FixtureOptions) -> None:
        self.options = options

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return False."""
        return False

    async def answer(self, work: Work) -> Evidence:
        """Return the case's fixture; raise `TargetError` of kind `fixture` if it has none."""
        if work.case.fixture is None:
            message = f"case '{work.case.id}' has no fixture, and its target answers from fixtures"
            raise TargetError("fixture", f"{message}; give the case `fixtures` or another target")
        return work.case.fixture
