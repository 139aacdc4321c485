"""What a file of saved evals holds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from evalcore.checks.saved_eval import AssertionTarget, EvalAssertion, Handle
from evalcore.formats.section import STRICT, EvalcoreSection, QuestionKeys

_FROZEN = ConfigDict(frozen=True, **STRICT, defer_build=True)
Name = Annotated[str, Field(min_length=1)]


class FileTarget(BaseModel):
    """The block that an eval replays."""

    model_config = _FROZEN

    type: Literal["block"]
    block_id: Name


class FileSource(BaseModel):
    """The frozen inputs of a block, by handle."""

    model_config = _FROZEN

    type: Literal["manual"]
    handle_inputs: dict[Name, Handle]


class FileEval(BaseModel):
    """One saved eval: a block, its inputs, one assertion about its output."""

    model_config = _FROZEN

    id: Name | None = None
    name: Name | None = None
    target: FileTarget
    source: FileSource
    assertion: EvalAssertion


@with_config(STRICT)
class EvalQuestion(QuestionKeys, total=False):
    """A question for people; `target` is the output handle, and the path in it, that they judge."""

    target: AssertionTarget


@with_config(STRICT)
class EvalsSection(EvalcoreSection, total=False):
    """The section `evalcore:` of the file; `human` is asked about each eval."""

    human: list[EvalQuestion]


@with_config(STRICT)
class OwnSection(TypedDict, total=False):
    """The section `evalcore:` of one eval."""

    human: list[EvalQuestion]


@with_config(STRICT)
class WorkflowEvalsFile(TypedDict, total=False):
    """A file of format `workflow-evals`; the workflow is written in it, or named by its path."""

    workflow: dict[str, Any] | Name
    evals: list[Any]
    evalcore: EvalsSection
