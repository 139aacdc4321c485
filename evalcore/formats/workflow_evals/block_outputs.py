"""What a block left, as a question of `evalcore assert` says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.checks.saved_eval import BLOCK_ERROR, HANDLE_OUTPUTS, Handle
from evalcore.formats.section import STRICT
from evalcore.mistakes.problems import Problems
from evalcore.model.evidence import Evidence


@with_config(STRICT)
class BlockOutputs(TypedDict, total=False):
    """The output handles of a block, or why it has none."""

    handle_outputs: dict[Annotated[str, Field(min_length=1)], Handle] | None
    block_error: str | None


def block_evidence(question: Mapping[str, Any]) -> Evidence:
    """Return the evidence of a question's block. Raises `LoadError` for handles of another shape.

    Keys of the question that say nothing of the block are not looked at.
    """
    keys = BlockOutputs.__optional_keys__
    written = {key: value for key, value in question.items() if key in keys}
    problems = Problems("question", lambda _: None)
    problems.check_shape(written, BlockOutputs)
    problems.raise_if_any()
    details = {
        HANDLE_OUTPUTS: written.get("handle_outputs") or {},
        BLOCK_ERROR: written.get("block_error"),
    }
    return Evidence("", details=details)
