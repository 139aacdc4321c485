"""The target `fixture`: the answer that the case itself gives."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.targets.work import Work


class FixtureOptions(BaseModel):
    """Options of a target of kind `fixture`: none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FixtureTarget:
    """Answers from the case's fixture and from nothing else."""

    def __init__(self, options: FixtureOptions) -> None:
        self.options = options

    def answer_now(self, work: Work) -> Evidence | None:
        """Return the case's fixture; raise `TargetError` of kind `fixture` if it has none."""
        return _given(work)

    async def answer(self, work: Work) -> Evidence:
        """Return the case's fixture, or raise, as `answer_now` does."""
        return _given(work)


def _given(work: Work) -> Evidence:
    if work.case.fixture is None:
        message = f"case '{work.case.id}' has no fixture, and its target answers from fixtures"
        raise TargetError("fixture", f"{message}; give the case `fixtures` or another target")
    return work.case.fixture
