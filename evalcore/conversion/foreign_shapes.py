"""What the files of other programs have to look like; keys beside these are allowed."""

from __future__ import annotations

from typing import Any, Required

from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.conversion.foreign_file import ForeignFile
from evalcore.declared.types import Measure
from evalcore.formats.parts.shared_shapes import OPEN
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems


def check_shape(file: ForeignFile, value: Any, shape: Any, loc: Loc = ()) -> None:
    """Raise `LoadError` with every mistake of `value`, which stands at `loc` of the file."""
    problems = Problems(file.name, file.locate)
    problems.check_shape(value, shape, loc)
    problems.raise_if_any()


@with_config(OPEN)
class PydanticCase(TypedDict, total=False):
    """A case of pydantic-evals."""

    name: str | None
    inputs: Required[Any]
    evaluators: list[str | dict[str, Any]] | None


@with_config(OPEN)
class PydanticDataset(TypedDict, total=False):
    """A dataset of pydantic-evals."""

    name: str | None
    cases: Required[list[PydanticCase]]
    evaluators: list[str | dict[str, Any]] | None


@with_config(OPEN)
class DeepEvalRow(TypedDict, total=False):
    """A golden or a test case of DeepEval."""

    input: Required[str | None]
    name: str | int | None
    tags: list[str] | str | None


@with_config(OPEN)
class InspectChoice(TypedDict, total=False):
    """One answer of a model."""

    message: dict[str, Any] | None


@with_config(OPEN)
class InspectOutput(TypedDict, total=False):
    """The output of a sample."""

    choices: list[InspectChoice] | None


@with_config(OPEN)
class InspectUsage(TypedDict, total=False):
    """Tokens of a model."""

    input_tokens: Measure | None
    output_tokens: Measure | None


@with_config(OPEN)
class InspectSample(TypedDict, total=False):
    """A sample of a log of Inspect AI."""

    id: Required[str | int]
    epoch: int
    input: Required[str | list[dict[str, Any]]]
    target: Any
    messages: list[dict[str, Any]] | None
    output: InspectOutput | None
    scores: dict[str, Any] | None
    metadata: dict[str, Any] | None
    attachments: dict[str, str] | None
    model_usage: dict[str, InspectUsage | None] | None
    total_time: Measure | None


@with_config(OPEN)
class InspectTask(TypedDict, total=False):
    """What a log says of its task."""

    task: str
    model: str | None
    model_roles: dict[str, Any] | None
    scorers: list[Any] | None


@with_config(OPEN)
class InspectResults(TypedDict, total=False):
    """The results of a log."""

    scores: list[Any] | None


@with_config(OPEN)
class InspectLog(TypedDict, total=False):
    """A log of Inspect AI."""

    eval: Required[InspectTask]
    results: InspectResults | None
    samples: list[InspectSample] | None


@with_config(OPEN)
class PromptfooAssertion(TypedDict, total=False):
    """An assertion of promptfoo."""

    type: Required[str]
    threshold: float | None
    weight: float | None
    metric: str | None
    transform: str | None
    config: dict[str, Any] | None


@with_config(OPEN)
class PromptfooOptions(TypedDict, total=False):
    """Options of a test."""

    prefix: str | None
    suffix: str | None
    transform: str | None
    postprocess: str | None


@with_config(OPEN)
class PromptfooTest(TypedDict, total=False):
    """A test of promptfoo."""

    description: str | None
    vars: dict[str, Any] | str | list[str] | None
    options: PromptfooOptions | None
    metadata: dict[str, Any] | None
    threshold: float | None


@with_config(OPEN)
class PromptfooConfiguration(TypedDict, total=False):
    """A configuration of promptfoo."""

    description: str | None
    tests: Any
    scenarios: list[Any] | None
    evaluateOptions: dict[str, Any] | None


@with_config(OPEN)
class LangSmithRow(TypedDict, total=False):
    """An example, or a run of an experiment, of LangSmith."""

    inputs: Required[Any]
    metadata: dict[str, Any] | str | None
    split: str | list[str] | None


@with_config(OPEN)
class BraintrustRow(TypedDict, total=False):
    """A row of a dataset or of an experiment of Braintrust."""

    input: Required[Any]
    metadata: dict[str, Any] | str | None
    metrics: dict[str, Any] | str | None
    scores: dict[str, Any] | str | None
    tags: str | list[str] | None
