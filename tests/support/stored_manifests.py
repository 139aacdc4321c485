"""Runs of which a store has the manifest only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evalcore.model.run import Manifest, Plan, State, StoredPart
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore

COUNTS = {"planned": 1, "completed": 1, "error": 0, "cancelled": 0, "skipped": 0}
COUNTS |= {"passed": 1, "failed": 0, "blocked": 0}


def put_manifest(store: ObjectStore, run_id: str, suite: str = "s", **changed: Any) -> StoredRun:
    """Write the manifest of a completed run of one item that passed; return the run."""
    moment = (
        f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T{run_id[9:11]}:{run_id[11:13]}:{run_id[13:15]}"
    )
    manifest = Manifest(
        id=run_id,
        suite=suite,
        format="test-file",
        state=State.COMPLETED,
        mode="live",
        created_at=f"{moment}.000000Z",
        source={"path": "s.eval.yaml", "sha256": "0" * 64},
        plan=Plan(1, 1, 1, 1, 1, 1, 1, 1),
        settings={},
        engine={},
        started_at=f"{moment}.000000Z",
        ended_at=f"{moment}.500000Z",
        counts=COUNTS,
        decision="pass",
        parts=(StoredPart(1, "0" * 64),),
    )
    run = open_run(store, suite, run_id)
    run.create(replace(manifest, **changed))
    return run
