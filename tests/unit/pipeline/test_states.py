"""The state of a run is changed by the process that coordinates it, and by no earlier one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.errors import ObjectNotFoundError, RunConflictError
from evalcore.formats.registry import load_suite
from evalcore.model.run import State
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import plan_run
from evalcore.pipeline.states import cancel_run
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run

_NOW = datetime(2026, 5, 18, 10, tzinfo=UTC)
_SUITE = """
tests:
  - {id: a, input: hi, expected_output: hi, fixtures: {output: hi},
     assertions: [{type: equals, value: hi}]}
"""


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    suite = tmp_path / "a.eval.yaml"
    suite.write_text(_SUITE)
    return plan_run(load_suite(suite), LocalStore(tmp_path / "store"), now=_NOW)


def _take_over(run: StoredRun, epoch: int) -> StoredRun:
    """Let another process take the run over; return the run as that one knows it."""
    other = find_run(run.store, run.run_id)
    other.update(lambda now: replace(now, execution={**now.execution, "epoch": epoch}))
    return other


def test_a_process_whose_run_was_taken_over_does_not_finish_it(run: StoredRun) -> None:
    execute_run(run)
    _take_over(run, 2)

    with (
        pytest.raises(RunConflictError, match=r"taken over .*\(epoch 2, this one has 1\)"),
        finish_run(run, now=_NOW),
    ):
        pass

    assert run.manifest().state is State.RUNNING
    with pytest.raises(ObjectNotFoundError):
        run.store.get(run.keys.report)


def test_a_process_whose_run_is_taken_over_meanwhile_does_not_finish_it(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute_run(run)
    put = LocalStore.put

    def put_and_lose(store: LocalStore, key: str, data: object) -> object:
        if key == run.keys.report:
            _take_over(run, 2)
        return put(store, key, data)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalStore, "put", put_and_lose)

    with (
        pytest.raises(RunConflictError, match="taken over"),
        finish_run(run, now=_NOW),
    ):
        pass

    assert run.manifest().state is State.RUNNING


def test_a_process_whose_run_was_taken_over_does_not_cancel_it(run: StoredRun) -> None:
    run.known_manifest()
    other = _take_over(run, 3)

    assert cancel_run(run, now=_NOW).state is State.RUNNING
    assert cancel_run(other, now=_NOW).state is State.CANCELLED


def test_the_holder_finishes_a_run_that_was_taken_over(run: StoredRun) -> None:
    execute_run(run)
    other = _take_over(run, 2)

    with finish_run(other, now=_NOW) as view:
        assert view.report.decision == "pass"

    assert run.manifest().state is State.COMPLETED
    assert run.manifest().epoch == 2
