"""The variables that the prompt of a judge may have, and what else each is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

ALIASES: Final[Mapping[str, Collection[str]]] = {
    "input": {"input", "input_text", "question"},
    "expected_output": {"expected_output", "expected_output_text", "reference_answer"},
    "output": {"output", "output_text", "answer", "candidate_answer"},
    "criteria": {"criteria"},
    "metadata": {"metadata", "metadata_json"},
    "tool_calls": {"tool_calls"},
    "file_changes": {"file_changes"},
}
VARIABLES: Final = (
    *(name for names in ALIASES.values() for name in sorted(names)),
    "results",
    "EVALUATOR_RESULTS_JSON",
)
