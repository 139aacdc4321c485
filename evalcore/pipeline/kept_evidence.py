"""What a suite keeps of its items (`evidence`), and what a run that kept no outputs refuses."""

from __future__ import annotations

from typing import Any, Final

from evalcore.errors import UsageError
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.run import Manifest
from evalcore.model.suite import EvidencePolicy, SuiteDefinition
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.runs import find_run

_SETTING: Final = "evidence"


def kept_evidence_settings(definition: SuiteDefinition) -> dict[str, Any]:
    """Return what a run's manifest says of it; nothing where answers are kept, as usual."""
    if definition.evidence is EvidencePolicy.ANSWERS:
        return {}
    return {_SETTING: str(definition.evidence)}


def kept_evidence(manifest: Manifest) -> EvidencePolicy:
    """Return what a run keeps of its items."""
    return EvidencePolicy(manifest.settings.get(_SETTING, EvidencePolicy.ANSWERS))


def check_kept_evidence(
    store: ObjectStore, definition: SuiteDefinition, *, mode: str, reuse: str | None
) -> None:
    """Raise `UsageError` for a mode that keeps what the suite does not, or a source without it."""
    if definition.evidence is EvidencePolicy.NONE and mode in {Mode.RECORD, Mode.AUTO}:
        raise UsageError(
            f"suite '{definition.name}' keeps no outputs (evidence: none), and mode {mode} stores "
            "every answer as a recording; use mode live, or evidence: answers"
        )
    if reuse in {None, HISTORY}:
        return
    source = find_run(store, str(reuse)).manifest()
    if kept_evidence(source) is EvidencePolicy.NONE:
        raise UsageError(
            f"run {source.id} kept no outputs (evidence: none), so there is nothing to grade "
            "again; run the suite instead"
        )
