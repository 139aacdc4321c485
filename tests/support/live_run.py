"""A run of a shard for each case, which a test executes bit by bit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import orjson

from evalcore.execution.worker import ShardReceipt
from evalcore.formats.registry import load_suite
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions, opened_run
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun

CASES = 4


def planned_run(folder: Path) -> StoredRun:
    """Return a run of fixtures with a shard for each case; none is executed."""
    tests = [
        {
            "id": f"case-{number}",
            "input": f"Greet {number}",
            "fixtures": {"output": "hello"},
            "assertions": [{"type": "contains", "value": "hello"}],
        }
        for number in range(CASES)
    ]
    path = folder / "greetings.eval.yaml"
    path.write_bytes(orjson.dumps({"tests": tests}))
    options = PlanOptions(workers=2, single_items=True)
    return plan_run(
        load_suite(path), open_store(str(folder / "store")), options, now=datetime.now(UTC)
    )


def execute(run: StoredRun, *shards: int) -> tuple[ShardReceipt, ...]:
    """Execute some shards, as a process would that dies afterwards without a lease."""
    run.manifest()
    with opened_run(run, ExecuteOptions(), 0) as opened:
        ended = [opened.execute(shard).result() for shard in shards]
    assert all(isinstance(each, ShardReceipt) for each in ended), ended
    return tuple(each for each in ended if isinstance(each, ShardReceipt))


def finish(run: StoredRun) -> None:
    """Decide the run."""
    with finish_run(run, now=datetime.now(UTC)):
        pass
