"""The shapes of what stands under `eval:` in a workflow file."""

from __future__ import annotations

from typing import Annotated, Any, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Share, Text
from evalcore.formats.section import OPEN, STRICT, EvalcoreSection, Fixture
from evalcore.workflow.definition import Graph, Soul


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
