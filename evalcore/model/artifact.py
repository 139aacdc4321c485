"""The result of an execution as users' own functions get it: scorers, checks, reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalcore.model.evidence import NOTHING, UNMEASURED, Evidence, Metrics
from evalcore.model.evidence_path import error_texts, output_values
from evalcore.model.own_copy import own_copy


@dataclass(frozen=True, slots=True)
class Artifact:
    """The evidence of one work item.

    `output` is the primary output as text; `outputs` has each block's output and `primary_output`,
    as values where those are known. `events` are in the order they happened; `calls` are the model
    calls.
    """

    output: str | None = None
    outputs: Mapping[str, Any] = NOTHING
    state: Any = NOTHING
    events: tuple[Mapping[str, Any], ...] = ()
    metrics: Metrics = UNMEASURED
    errors: tuple[str, ...] = ()
    calls: tuple[Mapping[str, Any], ...] = ()
    case_id: str = ""
    input: Any = None
    expected_output: Any = None


def artifact_of(
    evidence: Evidence,
    *,
    case_id: str = "",
    case_input: Any = None,
    expected_output: Any = None,
    events: tuple[Mapping[str, Any], ...] = (),
) -> Artifact:
    """Return the artifact of some evidence and of the case that it belongs to.

    Its values are its own: what a function changes there is not seen by other functions.
    """
    details = evidence.details
    return Artifact(
        output=evidence.output,
        outputs=own_copy(output_values(evidence)),
        state=own_copy(details.get("state", NOTHING)),
        events=own_copy(events or tuple(details.get("events") or ())),
        metrics=evidence.metrics,
        errors=tuple(error_texts(evidence)),
        calls=own_copy(tuple(details.get("calls") or ())),
        case_id=case_id,
        input=own_copy(case_input),
        expected_output=own_copy(expected_output),
    )
