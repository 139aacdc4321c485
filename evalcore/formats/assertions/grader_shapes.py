"""The foreign text of assertions that need a judge, a program or a trajectory (test-files)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import BeforeValidator, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Count, Share, Text, Weight
from evalcore.formats.parts.shared_shapes import STRICT, text_or_mapping

TextOrTexts = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    Discriminator(lambda value: "<list>" if isinstance(value, list) else "<text>"),
]
Command = TextOrTexts
Duration = Annotated[float, Field(gt=0)]


@with_config(STRICT)
class Common(TypedDict, total=False):
    """What every assertion may say."""

    name: Text
    weight: Weight
    negate: bool
    required: Annotated[bool | Share, Field(union_mode="left_to_right")]
    min_score: Share
    flags: str


@with_config(STRICT)
class JudgeShape(TypedDict, total=False):
    """One judge of several: a target, and what is laid over its options."""

    name: Text
    target: Text
    model: Text
    temperature: Weight


JudgeItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[JudgeShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


@with_config(STRICT)
class Judged(Common, total=False):
    """Who judges: one judge or several, how often, and how their scores become one."""

    judge: Text
    target: Text
    judges: Annotated[list[JudgeItem], Field(min_length=1)]
    model: Text
    temperature: Weight
    votes: Annotated[int, Field(ge=1, le=100)]
    aggregation: Literal["mean", "median", "majority"]
    threshold: Share


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


CriterionItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[CriterionShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]
Criteria = Annotated[list[CriterionItem], Field(min_length=1)]


@with_config(STRICT)
class LlmGraderAssertion(Judged, total=False):
    """A judge scores the output by a prompt, or by the test's `criteria`."""

    type: Required[Literal["llm-grader", "llm_grader"]]
    prompt: Text
    rubrics: Criteria


@with_config(STRICT)
class RubricsAssertion(Judged, total=False):
    """A judge answers every criterion in one call."""

    type: Required[Literal["rubrics"]]
    criteria: Required[Criteria]
    prompt: Text


@with_config(STRICT)
class CodeGraderAssertion(Common, total=False):
    """A program scores the output: JSON in, JSON out."""

    type: Required[Literal["code-grader", "code_grader"]]
    command: Required[Command]
    cwd: Text
    config: dict[str, Any]
    timeout_ms: Duration
    timeout: Duration
    env: dict[str, str]
    memory_mb: Count
    threshold: Share


@with_config(STRICT)
class SimilarAssertion(Common, total=False):
    """The output is near a text, or one of several: cosine similarity of embeddings."""

    type: Required[Literal["similar"]]
    value: TextOrTexts
    threshold: Share
    judge: Text
    target: Text
    model: Text


@with_config(STRICT)
class ExpectedCall(TypedDict, total=False):
    """One expected tool call; `args` are compared as `args_match` says."""

    tool: Required[Text]
    args: Any
    args_match: Any
    max_duration_ms: Weight


@with_config(STRICT)
class TrajectoryAssertion(Common, total=False):
    """The tool calls of the answer, in one of five modes."""

    type: Required[Literal["tool-trajectory", "tool_trajectory"]]
    mode: Required[Literal["any_order", "in_order", "exact", "superset", "subset"]]
    minimums: Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(min_length=1)]
    expected: list[ExpectedCall]
    args_match: Any
    threshold: Share


@with_config(STRICT)
class FieldShape(TypedDict, total=False):
    """One field that is compared with the same field of `expected_output`."""

    path: Required[Text]
    match: Literal["exact", "numeric_tolerance", "numeric-tolerance", "date"]
    required: bool
    weight: Weight
    tolerance: Weight
    relative: bool
    formats: Annotated[list[Text], Field(min_length=1)]


@with_config(STRICT)
class FieldAccuracyAssertion(Common, total=False):
    """Fields of a structured output against those of `expected_output`."""

    type: Required[Literal["field-accuracy", "field_accuracy"]]
    fields: Required[Annotated[list[FieldShape], Field(min_length=1)]]
    aggregation: Literal["weighted_average", "all_or_nothing"]
    threshold: Share


@with_config(STRICT)
class ExecutionMetricsAssertion(Common, total=False):
    """Several maxima at once; the score is the share of those that are kept."""

    type: Required[Literal["execution-metrics", "execution_metrics"]]
    max_tool_calls: Weight
    max_llm_calls: Weight
    max_tokens: Weight
    max_cost_usd: Weight
    max_duration_ms: Weight
    target_exploration_ratio: Share
    exploration_tolerance: Weight
    threshold: Share


@with_config(STRICT)
class Aggregator(TypedDict, total=False):
    """How the members' scores become one."""

    type: Required[
        Literal[
            "weighted_average",
            "weighted-average",
            "weighted_mean",
            "weighted-mean",
            "mean",
            "threshold",
            "minimum",
            "min",
            "code-grader",
            "code_grader",
            "code",
            "llm-grader",
            "llm_grader",
            "judge",
        ]
    ]
    weights: dict[str, Weight]
    threshold: Share
    command: Command
    path: Text
    cwd: Text
    config: dict[str, Any]
    prompt: Text
    judge: Text
    target: Text
    model: Text


AggregatorItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[Aggregator, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


@with_config(STRICT)
class CompositeAssertion(Common, total=False):
    """Several assertions and one score."""

    type: Required[Literal["composite"]]
    assertions: Annotated[list[Any], Field(min_length=1)]
    evaluators: Annotated[list[Any], Field(min_length=1)]
    members: Annotated[list[Any], Field(min_length=1)]
    aggregator: AggregatorItem
    threshold: Share


GRADER_SHAPES = (
    LlmGraderAssertion
    | RubricsAssertion
    | CodeGraderAssertion
    | SimilarAssertion
    | TrajectoryAssertion
    | FieldAccuracyAssertion
    | ExecutionMetricsAssertion
    | CompositeAssertion
)
