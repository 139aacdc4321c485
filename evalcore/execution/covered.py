"""Evidence without secrets: what is graded, stored and shown is the same."""

from __future__ import annotations

from collections.abc import Callable

from evalcore.model.evidence import Evidence
from evalcore.redaction.redactor import PROCESS


def covered_evidence(evidence: Evidence, cover: Callable[[str], str] | None = None) -> Evidence:
    """Return the evidence with its texts covered, by default with what this process knows.

    It is covered before it is graded, so that a replay and a regrade see what the run saw.
    """
    if cover is None:
        if not PROCESS.knows:
            return evidence
        cover = PROCESS.text
    output, outputs, details = evidence.output, evidence.outputs, evidence.details
    return evidence._replace(
        output=None if output is None else cover(output),
        outputs=PROCESS.value(outputs, cover) if outputs else outputs,
        details=PROCESS.value(details, cover) if details else details,
    )
