"""The foreign text of suite files: cases × variants (docs/reference/suites.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Count, Share, Text, Weight
from evalcore.formats.parts.shared_shapes import STRICT, EvalcoreSection, LimitsShape
from evalcore.formats.parts.target_shapes import TargetShape
from evalcore.mistakes.shape_lookup import CALLABLE

Path = Annotated[str, Field(min_length=1, description="outputs.main.code, state.items[0].name, …")]


@with_config(STRICT)
class _Common(TypedDict, total=False):
    name: Text
    weight: Weight
    metric: Text


@with_config(STRICT)
class OutputAssertion(_Common, total=False):
    """What stands at a path, by default the primary output, against a value."""

    type: Required[
        Literal["output.contains", "output.equals", "not-output.contains", "not-output.equals"]
    ]
    path: Path
    value: Required[Any]


@with_config(STRICT)
class MatchesAssertion(_Common, total=False):
    """A regular expression of Python's dialect matches somewhere in what stands at a path."""

    type: Required[Literal["output.matches", "not-output.matches"]]
    path: Path
    value: str
    pattern: str
    flags: str


@with_config(STRICT)
class MetricAssertion(_Common, total=False):
    """A measure of the work item is at most `value`: milliseconds, US dollars, tokens."""

    type: Required[
        Literal[
            "metric.latency_ms.max",
            "metric.total_cost_usd.max",
            "metric.tokens.input.max",
            "metric.tokens.output.max",
            "not-metric.latency_ms.max",
            "not-metric.total_cost_usd.max",
            "not-metric.tokens.input.max",
            "not-metric.tokens.output.max",
        ]
    ]
    value: Required[Weight]


@with_config(STRICT)
class ErrorsAssertion(_Common, total=False):
    """No model call and no block ended in an error."""

    type: Required[Literal["behavior.no_errors", "not-behavior.no_errors"]]


@with_config(STRICT)
class NodeAssertion(_Common, total=False):
    """A node ran."""

    type: Required[Literal["behavior.node_executed", "not-behavior.node_executed"]]
    node_id: Required[Text]


@with_config(STRICT)
class InvocationsAssertion(_Common, total=False):
    """A node ran at most `value` times."""

    type: Required[Literal["behavior.node_invocations.max", "not-behavior.node_invocations.max"]]
    node_id: Required[Text]
    value: Required[Annotated[int, Field(ge=0)]]


@with_config(STRICT)
class JudgeAssertion(_Common, total=False):
    """A model judges the output by `criteria`; it passes from `min_score` on."""

    type: Required[Literal["llm_judge", "not-llm_judge"]]
    path: Path
    criteria: Text
    min_score: Share
    config: dict[str, Any] | None
    value: Any
    threshold: Share


@with_config(STRICT)
class PythonAssertion(_Common, total=False):
    """A Python function judges: `fn(output, context)`, `fn(output)` or `fn(artifact)`."""

    type: Required[Literal["python", "not-python"]]
    callable: Required[Annotated[str, Field(pattern=CALLABLE)]]
    path: Path
    config: dict[str, Any] | None
    threshold: Share
    value: Any
    behaviour: str


AssertionShape = Annotated[
    OutputAssertion
    | MatchesAssertion
    | MetricAssertion
    | ErrorsAssertion
    | NodeAssertion
    | InvocationsAssertion
    | JudgeAssertion
    | PythonAssertion,
    Field(discriminator="type"),
]

ASSERTION_TYPES: tuple[str, ...] = (
    "output.contains",
    "output.equals",
    "output.matches",
    "metric.latency_ms.max",
    "metric.total_cost_usd.max",
    "metric.tokens.input.max",
    "metric.tokens.output.max",
    "behavior.no_errors",
    "behavior.node_executed",
    "behavior.node_invocations.max",
    "llm_judge",
    "python",
)


@with_config(STRICT)
class SuiteCase(TypedDict, total=False):
    """One case: an input, what is given instead of executing, and assertions."""

    id: Required[Text]
    name: str
    description: str | None
    input: Any
    expected_output: Any
    criteria: str | None
    tags: list[str]
    fixtures: dict[str, Any] | None
    assertions: list[Any] | None
    metadata: dict[str, Any]


@with_config(STRICT)
class SuiteVariant(TypedDict, total=False):
    """A small named change: provider, model and configuration."""

    id: Required[Text]
    provider: Text | None
    model: Text | None
    target: Text | None
    config: dict[str, Any] | None
    description: str
    tags: list[str]


@with_config(STRICT)
class SuiteLevel(TypedDict, total=False):
    """A suite without its cases."""

    name: Text
    description: str | None
    version: str | float | int
    flow: Required[Annotated[str, Field(min_length=1)] | dict[str, Any]]
    primary_output: Text
    variants: Annotated[list[SuiteVariant], Field(min_length=1)]
    baseline: Text | None
    scorers: list[Any]
    gates: list[Any]
    targets: list[TargetShape]
    columns: dict[str, Text]
    iterations: Count
    reducer: Literal["mean", "median", "min", "max", "pass_at_k", "pass_all_k", "at_least_k"]
    k: Count
    errors: Literal["fail", "zero", "exclude"]
    max_error_share: Share
    limits: LimitsShape
    tags: list[str]
    evalcore: EvalcoreSection


@with_config(STRICT)
class SuiteFile(SuiteLevel, total=False):
    """A whole suite file: `cases` is a list, or the path of a file or glob that holds them."""

    cases: Required[
        Annotated[list[SuiteCase], Field(min_length=1)]
        | str
        | Annotated[list[str], Field(min_length=1)]
    ]
