"""The foreign text of suite files: cases × variants (docs/reference/suites.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Count, Repetitions, Share, Text
from evalcore.formats.section import (
    STRICT,
    EvalcoreSection,
    LimitsShape,
    Reducers,
    WrittenGate,
)
from evalcore.formats.targets import TargetShape


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
    assertions: list[Any] | None
    baseline: Text | None
    scorers: list[Any]
    gates: list[WrittenGate]
    targets: list[TargetShape]
    columns: dict[str, Text]
    iterations: Repetitions
    reducer: Reducers
    k: Count
    errors: Literal["fail", "zero", "exclude"]
    max_error_share: Share
    truncated: Literal["keep", "error"]
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
