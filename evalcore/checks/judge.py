"""Which judges a check asks, and how their scores become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import STRICT, Check, Reader
from evalcore.checks.scale import Scale, share
from evalcore.declared.base import Declared
from evalcore.declared.types import OrAbsent, Share, Text, Weight, text_or_mapping
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


Votes = Annotated[int, Field(ge=1, le=100)]
Aggregation = Literal["mean", "median", "majority"]


class JudgedCheck(Check):
    """A check by judges: which, how often each is asked, and how their scores become one."""

    nested: ClassVar[bool] = True
    measure_scale: ClassVar[Scale] = share("the score")

    judges: list[Judge] = field(default_factory=list)
    votes: Votes = 1
    aggregation: Aggregation = "mean"
    threshold: OrAbsent[Share] = None
    prompt: str | None = None

    @property
    def panel(self) -> Panel:
        """Who is asked."""
        judges = tuple(judge.spec for judge in self.judges) or (JudgeSpec(),)
        return Panel(judges, self.votes, self.aggregation)


@with_config(STRICT)
class JudgeEntry(TypedDict, total=False):
    """One judge of several: a target, and what is laid over its options."""

    name: Text
    target: Text
    model: Text
    temperature: Weight


JudgeItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[JudgeEntry, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


class JudgeKeys(TypedDict, total=False):
    """The keys that say who judges: one judge or several."""

    judge: Text
    target: Text
    judges: Annotated[list[JudgeItem], Field(min_length=1)]
    model: Text
    temperature: Weight


def read_judged(written: Mapping[str, Any], reader: Reader) -> dict[str, Any]:
    """Return the fields of a `JudgedCheck` but for its prompt."""
    return {
        "judges": reader.judges(written),
        "votes": written.get("votes", 1),
        "aggregation": written.get("aggregation", "mean"),
        "threshold": passing_score(written),
    }


def passing_score(written: Mapping[str, Any]) -> float | None:
    """Return the score from which a graded assertion passes; None if it says nothing."""
    for key in ("threshold", "required", "min_score"):
        value = written.get(key)
        if value is not None and not isinstance(value, bool):
            return float(value)
    return None
