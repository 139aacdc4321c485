"""The shapes of foreign text that several formats share.

Shapes are TypedDicts that pydantic validates (strictly, extra keys forbidden); the JSON Schemas of
`evalcore schema` come from the same ones.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import (
    Count,
    Measure,
    Repetitions,
    Share,
    Text,
    Weight,
    text_or_mapping,
)
from evalcore.gates.registry import gate_schema
from evalcore.model.measures import LARGEST

Reducers = Literal[
    "mean",
    "median",
    "min",
    "max",
    "pass_at_k",
    "pass_all_k",
    "at_least_k",
    "confidence_interval",
]

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _GateSchema:
    """The JSON Schema of a gate, made from the classes of gates; `gates.registry` reads gates."""

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return gate_schema()


WrittenGate = Annotated[Any, _GateSchema()]


_Tokens = Annotated[int, Field(ge=0, le=LARGEST)]


@with_config(STRICT)
class MetricsShape(TypedDict, total=False):
    """Measures that a fixture carries: milliseconds, US dollars, tokens."""

    latency_ms: Measure
    ttft_ms: Measure
    cost_usd: Measure
    input_tokens: _Tokens
    output_tokens: _Tokens
    cached_tokens: _Tokens
    cache_write_tokens: _Tokens
    cache_write_1h_tokens: _Tokens
    input_audio_tokens: _Tokens
    reasoning_tokens: _Tokens
    output_audio_tokens: _Tokens
    batch_tokens: _Tokens


@with_config(STRICT)
class MeasuredFixture(TypedDict, total=False):
    """A given output together with its measures."""

    output: Required[str]
    metrics: MetricsShape


Fixture = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[MeasuredFixture, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


@with_config(STRICT)
class VariantShape(TypedDict, total=False):
    """A small named change to the target's configuration."""

    id: Required[Text]
    target: Text
    config: dict[str, Any]
    tags: list[str]


@with_config(STRICT)
class ProviderLimitsShape(TypedDict, total=False):
    """What a provider takes, over all workers."""

    requests_per_minute: Annotated[float, Field(gt=0)]
    tokens_per_minute: Annotated[float, Field(gt=0)]
    max_concurrency: Count


@with_config(STRICT)
class LimitsShape(TypedDict, total=False):
    """Bounds of a run: of an item (`timeout_s`), of the whole (budgets), of each provider."""

    concurrency: Count
    timeout_s: Annotated[float, Field(gt=0)]
    max_cost_usd: Weight
    max_tokens: Annotated[int, Field(ge=0)]
    max_duration_s: Annotated[float, Field(gt=0)]
    providers: dict[str, ProviderLimitsShape]


@with_config(STRICT)
class NotifyShape(TypedDict, total=False):
    """Who is told of a decision: names of variables that hold Apprise addresses; and when."""

    to: Required[Annotated[list[Text], Field(min_length=1)]]
    on: Literal["change", "failure", "always"]


@with_config(STRICT)
class AnnotationShape(TypedDict, total=False):
    """How long people have to answer, such as `48h` or `3d`, and what follows if they do not."""

    deadline: Required[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}[mhdw]$")]]
    then: Literal["inconclusive", "fail"]


@with_config(STRICT)
class EvalcoreSection(TypedDict, total=False):
    """What evalcore adds to a format: repetitions, gates, policies."""

    name: Text
    variants: Annotated[list[VariantShape], Field(min_length=1)]
    baseline: Text
    iterations: Repetitions
    reducer: Reducers
    k: Count
    threshold: Share
    gates: list[WrittenGate]
    errors: Literal["fail", "zero", "exclude"]
    max_error_share: Share
    truncated: Literal["keep", "error"]
    limits: LimitsShape
    tags: list[str]
    cluster: Text
    stop_when_decided: bool
    notify: NotifyShape
    annotation: AnnotationShape
    judge: Text
    require_calibrated: bool
    evidence: Literal["full", "answers", "none"]
