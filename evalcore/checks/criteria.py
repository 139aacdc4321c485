"""The criteria of a rubric: as files write them, and as the plan stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Required

from pydantic import BeforeValidator, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import AssertionValueError
from evalcore.shapes import STRICT, Share, Text, Weight, text_or_mapping


@with_config(STRICT)
class ScoreRange(TypedDict, total=False):
    """What a range of scores means."""

    score_range: Required[Annotated[list[Weight], Field(min_length=2, max_length=2)]]
    outcome: Required[Text]


def _texts(value: object) -> object:
    """Return a mapping of scores with text as its keys, as JSON has them."""
    if not isinstance(value, dict):
        return value
    numbers = all(isinstance(key, int | float) and not isinstance(key, bool) for key in value)
    return {f"{key:g}": meaning for key, meaning in value.items()} if numbers else value


ScoreRanges = Annotated[
    Annotated[list[ScoreRange], Field(min_length=1), Tag("<list>")]
    | Annotated[dict[str, Text], BeforeValidator(_texts), Field(min_length=1), Tag("<mapping>")],
    Discriminator(lambda value: "<list>" if isinstance(value, list) else "<mapping>"),
]


@with_config(STRICT)
class CriterionShape(TypedDict, total=False):
    """One criterion of a rubric; with `score_ranges` it is scored, else it is met or not."""

    id: Text
    outcome: Text
    description: Text
    weight: Weight
    required: Annotated[bool | Share, Field(union_mode="left_to_right")]
    min_score: Share
    score_ranges: ScoreRanges
    required_min_score: Annotated[int, Field(ge=0, le=10)]
    operator: Literal["correctness", "contradiction"]


CriterionItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[CriterionShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


def _listed(value: object) -> object:
    """Return a criterion on its own as the list of it."""
    return [value] if isinstance(value, str) else value


Criteria = Annotated[list[CriterionItem], BeforeValidator(_listed), Field(min_length=1)]

# What an operator says to the judge, who sees one text for each criterion.
_OPERATORS: Final = {
    "correctness": (
        "{} (met only if the output states or supports this; leaving it out does not meet it)"
    ),
    "contradiction": (
        "The output makes no claim that contradicts this: {} (it need not mention it)"
    ),
}


def read_criteria(raw: Sequence[Any]) -> list[dict[str, Any]]:
    """Return criteria as `Criterion` takes them; raise `AssertionValueError`."""
    criteria: list[dict[str, Any]] = []
    for index, written in enumerate(raw):
        entry = {"outcome": written} if isinstance(written, str) else dict(written)
        criteria.append(_criterion(entry, index))
    ids = [criterion["id"] for criterion in criteria]
    for name in ids:
        if ids.count(name) > 1:
            raise AssertionValueError(f"two criteria have the id '{name}'")
    if not any(criterion["weight"] for criterion in criteria):
        raise AssertionValueError("no criterion has any weight")
    return criteria


def _criterion(entry: Mapping[str, Any], index: int) -> dict[str, Any]:
    where = f"criteria[{index}]"
    if "outcome" in entry and "description" in entry:
        raise AssertionValueError(f"{where}: 'description' is another name of 'outcome'; keep one")
    outcome = entry.get("outcome", entry.get("description"))
    levels = _levels(entry["score_ranges"], where) if "score_ranges" in entry else []
    if outcome is None and not levels:
        raise AssertionValueError(f"{where}: 'outcome' is required: what the output has to do")
    if "required_min_score" in entry:
        if "min_score" in entry:
            message = "'required_min_score' (0 to 10) and 'min_score' (0 to 1) are both given"
            raise AssertionValueError(f"{where}: {message}; keep one")
        entry = {**entry, "min_score": entry["required_min_score"] / 10}
    if "min_score" in entry and entry.get("required") not in (None, True, False):
        raise AssertionValueError(f"{where}: 'required' and 'min_score' are both numbers; keep one")
    return {
        "id": entry.get("id") or f"criterion-{index + 1}",
        "outcome": _OPERATORS.get(entry.get("operator", ""), "{}").format(
            outcome or "; ".join(meaning for _, meaning in levels)
        ),
        "weight": float(entry.get("weight", 1.0)),
        "required": _required(entry, levels),
        "levels": levels,
    }


def _required(entry: Mapping[str, Any], levels: Sequence[Any]) -> float | None:
    if entry.get("required") is False:
        return None
    if "min_score" in entry:
        return float(entry["min_score"])
    required = entry.get("required")
    if required is True:
        return 0.8 if levels else 1.0
    return None if required is None else float(required)


def _levels(raw: Any, where: str) -> list[tuple[float, str]]:
    """Return the scores of a criterion and what they mean, the lowest first."""
    levels: list[tuple[float, str]] = []
    if isinstance(raw, Mapping):
        for key, meaning in raw.items():
            try:
                levels.append((float(key), meaning))
            except ValueError:
                message = f"{where}: score_ranges: '{key}' is no number"
                raise AssertionValueError(message) from None
    else:
        for score_range in raw:
            low, high = score_range["score_range"]
            if low > high:
                message = f"{where}: score_ranges: [{low:g}, {high:g}] begins after its end"
                raise AssertionValueError(message)
            levels.extend((edge, score_range["outcome"]) for edge in dict.fromkeys((low, high)))
    levels.sort(key=lambda level: level[0])
    if levels[0][0] < 0 or levels[-1][0] <= 0:
        raise AssertionValueError(f"{where}: score_ranges: scores go from 0 up to more than 0")
    return [(float(score), meaning) for score, meaning in levels]
