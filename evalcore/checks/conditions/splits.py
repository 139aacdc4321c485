"""The condition on how a document is split into parts."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from evalcore.checks.conditions.base import Condition, type_error
from evalcore.checks.conditions.verdict import ConditionVerdict, verdict
from evalcore.model.tolerance import reaches

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


# The integers that every reader of JSON has exactly (RFC 8259, section 6).
PageNumber = Annotated[int, Field(gt=-(2**53), lt=2**53)]


class Split(BaseModel):
    """One part of a document: its name and the numbers of its pages."""

    model_config = _STRICT

    name: str
    pages: list[PageNumber]


class Splits(BaseModel):
    """A document's parts."""

    model_config = _STRICT

    splits: list[Split]

    @property
    def pages(self) -> dict[str, set[int]]:
        """The pages of each name; parts of the same name are one."""
        pages: dict[str, set[int]] = {}
        for split in self.splits:
            pages.setdefault(split.name, set()).update(split.pages)
        return pages


class _ActualSplit(Split):
    model_config = _STRICT | ConfigDict(extra="ignore")


_ACTUAL = TypeAdapter(list[_ActualSplit])


class SplitIouGte(Condition):
    """The mean intersection over union of the pages of each part is at least `threshold`.

    The mean goes over all names of both sides; a name of one side only counts 0.
    """

    kind: Literal["split_iou_gte"]
    expected: Splits
    threshold: Annotated[float, Field(ge=0, le=1)] = 1.0

    @property
    def certain_outcome(self) -> bool | None:
        """True if no splits overlap less than the threshold."""
        return True if self.threshold == 0 else None

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; the value is `{splits: […]}` or the list itself."""
        listed = value.get("splits") if isinstance(value, dict) else value
        try:
            actual = Splits(splits=list(_ACTUAL.validate_python(listed)))
        except ValidationError:
            return type_error("splits, a list of {name, pages}", value)
        score = mean_iou(actual.pages, self.expected.pages)
        return verdict(reaches(score, self.threshold), f"mean IoU {score:.4g} < {self.threshold:g}")


def mean_iou(actual: Mapping[str, set[int]], expected: Mapping[str, set[int]]) -> float:
    """Return the mean intersection over union over all names; 1.0 if there are none."""
    names = [*expected, *(name for name in actual if name not in expected)]
    if not names:
        return 1.0
    return fsum(_iou(actual.get(name), expected.get(name)) for name in names) / len(names)


def _iou(actual: set[int] | None, expected: set[int] | None) -> float:
    if actual is None or expected is None:
        return 0.0
    union = actual | expected
    return len(actual & expected) / len(union) if union else 1.0
