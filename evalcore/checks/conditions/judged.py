"""Conditions that a judge decides by choosing one of the labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from evalcore.checks.conditions.base import Condition, ConditionServices
from evalcore.checks.conditions.verdict import BlockedCode, ConditionVerdict, blocked, verdict
from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeQuestion, JudgeSpec
from evalcore.judging.panel import ask_until_valid
from evalcore.judging.prompts import SYSTEM, fill
from evalcore.judging.replies import ReplyError, read_object, text_of

Label = Annotated[str, Field(min_length=1)]
DEFAULT_LABELS: Final = ("yes", "no")
_PROMPT: Final = (
    "Choose the label of the value by the rubric.\n\nRubric: {{rubric}}\n\nLabels: {{labels}}\n\n"
    "Value: {{value}}\n\n"
    'Answer with JSON only, in this form: {"label": one of the labels, "reasoning": one sentence}'
)


class _Judged(Condition):
    rubric: Label
    labels: Annotated[list[Label], Field(min_length=1, default_factory=lambda: [*DEFAULT_LABELS])]
    expected_label: Label = "yes"

    @property
    def asks_judge(self) -> bool:
        """True."""
        return True

    @property
    def expected_value(self) -> Any:
        """The expected label."""
        return self.expected_label

    def mistakes(self) -> Iterator[str]:
        """Yield why no judge could meet the condition."""
        if _folded(self.expected_label) not in map(_folded, self.labels):
            yield (
                f"expected_label '{self.expected_label}' is not one of the labels: "
                + ", ".join(self.labels)
            )

    async def _label(self, value: Any, services: ConditionServices) -> str | ConditionVerdict:
        """Return the label that the judge chooses, without case, or why there is none."""
        for mistake in self.mistakes():
            return blocked(BlockedCode.TYPE_ERROR, mistake)
        question = self._question(value)
        try:
            vote = await ask_until_valid(
                services.judges, JudgeSpec(), question, lambda text: self._read(text, question)
            )
        except TargetError as error:
            return blocked(BlockedCode.JUDGE_UNAVAILABLE, str(error))
        return str(vote.reading)

    def _question(self, value: Any) -> JudgeQuestion:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        material = {"rubric": self.rubric, "labels": ", ".join(self.labels), "value": text}
        filled = fill(_PROMPT, material)
        schema = {
            "type": "object",
            "properties": {
                "label": {"type": "string", "enum": self.labels},
                "reasoning": {"type": "string"},
            },
            "required": ["label", "reasoning"],
            "additionalProperties": False,
        }
        return JudgeQuestion(SYSTEM, filled.text, schema, filled.material)

    def _read(self, text: str, question: JudgeQuestion) -> str:
        label = _folded(text_of(read_object(text, question.material), "label"))
        if label not in map(_folded, self.labels):
            raise ReplyError(f"'label' has to be one of {', '.join(self.labels)}")
        return label


class LlmJudgedAs(_Judged):
    """A judge gives the value the label `expected_label`, by the rubric."""

    kind: Literal["llm_judged_as"]

    async def evaluate(self, value: Any, services: ConditionServices) -> ConditionVerdict:
        """Return the verdict; blocked without a valid answer."""
        label = await self._label(value, services)
        if isinstance(label, ConditionVerdict):
            return label
        return verdict(label == _folded(self.expected_label), f"judged as '{label}'")


class LlmNotJudgedAs(_Judged):
    """A judge gives the value another label than `expected_label`."""

    kind: Literal["llm_not_judged_as"]

    async def evaluate(self, value: Any, services: ConditionServices) -> ConditionVerdict:
        """Return the verdict; blocked without a valid answer."""
        label = await self._label(value, services)
        if isinstance(label, ConditionVerdict):
            return label
        return verdict(label != _folded(self.expected_label), f"judged as '{label}'")


def _folded(label: str) -> str:
    return label.strip().casefold()
