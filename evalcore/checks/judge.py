"""Which judges a check asks, and how their scores become one."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from evalcore.checks.base import Check
from evalcore.declared.base import Declared
from evalcore.declared.types import Share, Text, Weight
from evalcore.judging.asking import JudgeSpec
from evalcore.judging.panel import Panel


class Judge(Declared):
    """A judge: a target's name (none: the suite's), and what is laid over its options."""

    name: Text | None = None
    model: Text | None = None
    temperature: Weight | None = None

    @property
    def spec(self) -> JudgeSpec:
        """The judge as it is asked."""
        return JudgeSpec(self.name, self.model, self.temperature)


class JudgedCheck(Check):
    """A check by judges: which, how often each is asked, and how their scores become one."""

    nested: ClassVar[bool] = True

    judges: list[Judge] = field(default_factory=list)
    votes: Annotated[int, Field(ge=1, le=100)] = 1
    aggregation: Literal["mean", "median", "majority"] = "mean"
    threshold: Share | None = None
    prompt: str | None = None

    @property
    def panel(self) -> Panel:
        """Who is asked."""
        judges = tuple(judge.spec for judge in self.judges) or (JudgeSpec(),)
        return Panel(judges, self.votes, self.aggregation)
