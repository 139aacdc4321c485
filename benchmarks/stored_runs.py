"""A store of many runs, made from one: its objects are linked, its manifest has other times."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.measure import EVALCORE, run_measured
from benchmarks.throughput import write_cases

FIRST_RUN = datetime(2025, 1, 1, 2, tzinfo=UTC)


def make_run(folder: Path, cases: int, variant: str = "own-values") -> Path:
    """Run a suite of that many cases into `folder/store`; return the folder of the run."""
    suite, store = folder / "nightly.jsonl", folder / "store"
    write_cases(suite, cases, variant)
    run_measured([EVALCORE, "run", str(suite), "--store", str(store)])
    (manifest,) = store.glob("runs/*/*/manifest.json")
    return manifest.parent


def copy_run(run: Path, number: int, every: timedelta = timedelta(days=1)) -> str:
    """Copy a run as the `number`th one of its suite, `every` apart; return its id."""
    created = FIRST_RUN + number * every
    run_id = f"{created:%Y%m%dT%H%M%SZ}-{number:06x}"
    target = run.with_name(run_id)
    for source in run.rglob("*"):
        if source.is_file() and source.name != "manifest.json":
            path = target / source.relative_to(run)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, path)
    manifest = json.loads((run / "manifest.json").read_bytes())
    times = {
        "created_at": created,
        "started_at": created,
        "ended_at": created + timedelta(minutes=5),
    }
    manifest |= {name: f"{time:%Y-%m-%dT%H:%M:%S}.000000Z" for name, time in times.items()}
    (target / "manifest.json").write_text(json.dumps(manifest | {"id": run_id}))
    return run_id
