"""The scorer that a judge's free score gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from evalcore.checks.scorers.score import Score
from evalcore.checks.scorers.scorer import Scorer, ScorerResources
from evalcore.declared.parameter_types import MaybeText
from evalcore.errors import EvalError
from evalcore.judging.asking import JudgeSpec
from evalcore.judging.panel import Panel
from evalcore.judging.prompts import conversation_text, escape_variables, expected_text
from evalcore.judging.rubrics import DEFAULT_PROMPT, grade_freely
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case


@dataclass(frozen=True)
class LlmJudgeScorer(Scorer):
    """The score that a [judge](graders.md) gives by `criteria`, else by the case's."""

    criteria: MaybeText = None
    judge: MaybeText = None
    model: MaybeText = None

    @cached_property
    def is_awaited(self) -> bool:
        """A judge is asked."""
        return True

    async def ask(self, evidence: Evidence, case: Case, resources: ScorerResources) -> Score:
        """Return the judge's score; no value where no judge gives one."""
        prompt = None
        if self.criteria is not None:
            prompt = f"{DEFAULT_PROMPT}\n\nCriteria:\n{escape_variables(self.criteria)}"
        if evidence.output is None:
            return self.fails("there is no output")
        material = {
            "input": conversation_text(case.input),
            "output": evidence.output,
            "expected_output": expected_text(case.expected_output),
            "criteria": case.criteria or "",
        }
        panel = Panel((JudgeSpec(self.judge, self.model),))
        try:
            grade = await grade_freely(resources.judges, panel, prompt, material, 0.8)
        except EvalError as error:
            return self.fails(error)
        return Score(self.label, grade.score, grade.score)
