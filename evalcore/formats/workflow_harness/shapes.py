"""The shapes of what stands under `eval:` in a workflow file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Share, Text, Weight
from evalcore.formats.parts.shared_shapes import OPEN, STRICT, EvalcoreSection, Fixture
from evalcore.mistakes.shape_lookup import CALLABLE, CUSTOM_TYPE
from evalcore.workflow.definition import Graph, Soul

Scalar = Annotated[
    str | int | float | bool,
    Field(description="Text; numbers and booleans are taken as Python's str()"),
]
JsonSchema = dict[str, Any] | bool | None


@with_config(STRICT)
class _Common(TypedDict, total=False):
    weight: Weight
    transform: str
    metric: str
    config: dict[str, Any] | None


@with_config(STRICT)
class _WithThreshold(_Common, total=False):
    threshold: float | None


@with_config(STRICT)
class TextAssertion(_WithThreshold, total=False):
    """The output against one text."""

    type: Required[
        Literal[
            "contains",
            "icontains",
            "starts-with",
            "ends-with",
            "not-contains",
            "not-icontains",
            "not-starts-with",
            "not-ends-with",
            "regex",
            "not-regex",
            "levenshtein",
            "bleu",
            "rouge-n",
            "similar",
            "not-levenshtein",
            "not-bleu",
            "not-rouge-n",
            "not-similar",
        ]
    ]
    value: Required[Scalar]


@with_config(STRICT)
class EqualsAssertion(_WithThreshold, total=False):
    """The output is the value; with `config.mode: json` both are compared as JSON."""

    type: Required[Literal["equals", "not-equals"]]
    value: Required[Any]


@with_config(STRICT)
class ListAssertion(_WithThreshold, total=False):
    """The output against several texts."""

    type: Required[
        Literal[
            "contains-all",
            "contains-any",
            "icontains-all",
            "icontains-any",
            "not-contains-all",
            "not-contains-any",
            "not-icontains-all",
            "not-icontains-any",
        ]
    ]
    value: Required[list[Scalar]]


@with_config(STRICT)
class WordRange(TypedDict, total=False):
    """Inclusive bounds of a number of words."""

    min: int | None
    max: int | None


@with_config(STRICT)
class WordCountAssertion(_WithThreshold, total=False):
    """The number of whitespace-separated words."""

    type: Required[Literal["word-count", "not-word-count"]]
    value: Required[int | WordRange]


@with_config(STRICT)
class JsonAssertion(_WithThreshold, total=False):
    """The output is (or contains) JSON, optionally valid against a JSON Schema."""

    type: Required[Literal["is-json", "contains-json", "not-is-json", "not-contains-json"]]
    value: JsonSchema


@with_config(STRICT)
class MeasureAssertion(_Common, total=False):
    """A measured quantity is at most `threshold`: USD, milliseconds, tokens."""

    type: Required[Literal["cost", "latency", "tokens", "not-cost", "not-latency", "not-tokens"]]
    threshold: Required[float]
    value: Any


@with_config(STRICT)
class JudgeAssertion(_WithThreshold, total=False):
    """A model judges the output by `config.rubric`."""

    type: Required[Literal["llm_judge", "not-llm_judge"]]
    value: Any


@with_config(STRICT)
class PythonAssertion(_WithThreshold, total=False):
    """A Python function judges the output."""

    type: Required[Literal["python", "not-python"]]
    callable: Required[Annotated[str, Field(pattern=CALLABLE)]]
    value: Any


@with_config(STRICT)
class CustomAssertion(_WithThreshold, total=False):
    """A plug-in from `custom/assertions/<id>.yaml`; `type` is `custom:<id>`."""

    type: Required[Annotated[str, Field(pattern=CUSTOM_TYPE)]]
    value: Any


AssertionShape = Annotated[
    TextAssertion
    | EqualsAssertion
    | ListAssertion
    | WordCountAssertion
    | JsonAssertion
    | MeasureAssertion
    | JudgeAssertion
    | PythonAssertion,
    Field(discriminator="type"),
]


@with_config(STRICT)
class EvalCase(TypedDict, total=False):
    """One case: inputs, fixtures, and assertions per block."""

    id: Required[Text]
    description: str | None
    inputs: dict[str, Any] | None
    fixtures: dict[str, Fixture] | None
    expected: dict[str, list[Any]] | None


@with_config(STRICT)
class EvalSection(TypedDict, total=False):
    """The `eval:` section. `threshold` defaults to 1.0."""

    threshold: Share | None
    cases: Required[Annotated[list[EvalCase], Field(min_length=1)]]


@with_config(OPEN)
class WorkflowFile(TypedDict, total=False):
    """A workflow file with an `eval:` section; other top-level keys are allowed."""

    version: str | float | int
    blocks: dict[str, Any] | None
    souls: dict[str, Soul] | None
    workflow: Graph
    eval: Required[EvalSection]
    evalcore: EvalcoreSection


ASSERTION_TYPES: tuple[str, ...] = (
    "equals",
    "contains",
    "icontains",
    "starts-with",
    "ends-with",
    "contains-all",
    "contains-any",
    "icontains-all",
    "icontains-any",
    "regex",
    "word-count",
    "is-json",
    "contains-json",
    "levenshtein",
    "bleu",
    "rouge-n",
    "similar",
    "cost",
    "latency",
    "tokens",
    "llm_judge",
    "python",
)
