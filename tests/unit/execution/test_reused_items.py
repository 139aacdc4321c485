"""Evidence of earlier runs: it stands in the plan, and is copied before it is read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.errors import DamagedRunError
from evalcore.execution.reused_items import ReusedItems
from evalcore.formats.registry import load_suite
from evalcore.model.mode import HISTORY
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import evaluate, finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun

_NOW = datetime(2026, 5, 18, 10, tzinfo=UTC)
_SUITE = """
name: repeated
tests:
  - {id: a, input: hi, expected_output: hi, fixtures: {output: hi},
     assertions: [{type: equals, value: hi}]}
  - {id: b, input: ho, expected_output: ho, fixtures: {output: no},
     assertions: [{type: equals, value: ho}]}
"""


def _planned_again(folder: Path, reuse: str | None = None) -> tuple[StoredRun, str]:
    """Return a run that is planned to take over the items of a run, and that run's id."""
    path = folder / "a.eval.yaml"
    path.write_text(_SUITE)
    store = LocalStore(folder / "store")
    with evaluate(load_suite(path), store) as view:
        earlier = view.run
    options = PlanOptions(reuse=reuse or earlier.run_id)
    run = plan_run(load_suite(path), store, options, now=_NOW)
    for info in list(store.list(earlier.keys.folder)):
        store.delete(info.key)
    return run, earlier.run_id


@pytest.mark.parametrize("reuse", [HISTORY, None], ids=["reused", "graded again"])
def test_what_executes_a_planned_run_asks_no_earlier_run(tmp_path: Path, reuse: str | None) -> None:
    run, earlier = _planned_again(tmp_path, reuse)

    execute_run(run)
    with finish_run(run, now=_NOW) as view:
        assert view.report.run.reused == ({"run": earlier, "items": 2},)
        counts = view.report.summary.counts
        assert (counts.passed, counts.failed, counts.error) == (1, 1, 0)

    reused = ReusedItems(run, required=False)
    reused.prepare(range(2))
    found = [reused.find(item) for item in range(2)]
    assert [each and each.evidence and each.evidence.output for each in found] == ["hi", "no"]
    reused.forget(0)
    assert reused.find(0) is None


def test_a_signed_part_that_is_missing_is_damage(tmp_path: Path) -> None:
    run, _ = _planned_again(tmp_path, HISTORY)
    run.store.delete(run.keys.reuse_part(0))

    with pytest.raises(DamagedRunError, match=r"plan/reuse-00000.parquet is missing"):
        ReusedItems(run, required=False).prepare(range(2))
