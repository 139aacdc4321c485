"""An eval that ends the process that executes it: three times, and the others have results."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.conditions import EvalAssertion
from evalcore.model.run import State
from evalcore.pipeline.lease import read_lease
from evalcore.service.engine import (
    EndSignals,
    FrozenEval,
    committed_results,
    execute_evals,
    plan_evals,
    planned_run,
)
from evalcore.service.worker import new_engine_run
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.processes import exit_code
from tests.support.service import Service, eval_body, service

pytestmark = pytest.mark.multiprocess


@pytest.fixture(autouse=True)
def _unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks write their marks and end the process."""
    monkeypatch.setenv("EVALCORE_ALLOW_UNCONFINED_CODE", "1")


EVALS, RUNS = "/v1/workflows/evals", "/v1/workflows/evals/runs"


def deadly_workflow(marks: Path) -> dict[str, Any]:
    """Return a workflow whose block notes its amount, and kills the service for a negative one."""
    code = (
        "import os, signal\n"
        "def main(data):\n"
        f"    file = os.open({str(marks)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "    os.write(file, f\"{data['amount']}\\n\".encode())\n"
        "    if data['amount'] < 0:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return 1\n"
    )
    block = {"type": "code", "code": code, "inputs": {"amount": "workflow.amount"}}
    return {"blocks": {"extract": block}, "workflow": {"entry": "extract", "transitions": []}}


def executions(marks: Path) -> Counter[int]:
    return Counter(map(int, marks.read_text().split()))


def planned(folder: Path, amounts: list[int]) -> StoredRun:
    run = planned_run(LocalStore(folder / "store"), "wf_deadly", new_engine_run())
    assertion = EvalAssertion.model_validate(
        {
            "id": "assert_x",
            "target": {"output_handle_id": "output-json-0"},
            "condition": {"kind": "exists"},
        }
    )
    evals = [
        FrozenEval(
            f"eval_{amount}",
            "extract",
            {"input-json-0": {"type": "json", "data": amount}},
            assertion,
        )
        for amount in amounts
    ]
    plan_evals(run, "wf_deadly", deadly_workflow(folder / "marks"), evals)
    return run


def execute(run: StoredRun) -> None:
    execute_evals(run, Settings(), EndSignals(lambda: False, lambda: False))


def begin_and_hand_back(run: StoredRun) -> None:
    """Execute a run that is told to end when its shard has begun."""
    earlier = read_lease(run)

    def has_begun() -> bool:
        return read_lease(run) != earlier

    execute_evals(run, Settings(), EndSignals(has_begun, has_begun))


def attempt(run: StoredRun) -> int | None:
    """Execute a run in a process of its own, as each start of the service does."""
    return exit_code(execute, run)


def test_evals_that_end_the_process_are_executed_three_times_and_the_others_finish(
    tmp_path: Path,
) -> None:
    amounts = [1, -1, 2, -2, 3]
    run = planned(tmp_path, amounts)
    codes = [attempt(run)]
    while codes[-1] == -signal.SIGKILL and len(codes) < 10:
        codes.append(attempt(run))
    killed = codes[:-1]
    assert codes[-1] == 0
    assert run.manifest().state is State.COMPLETED
    marks = executions(tmp_path / "marks")
    # At most twice with all others and once alone, in a process of its own: an end of the process
    # counts for each eval that was begun, and of two at the same time the quicker one may end the
    # other before its mark.
    assert 1 <= min(marks[-1], marks[-2]) <= max(marks[-1], marks[-2]) <= 3
    assert 2 <= len(killed) <= marks[-1] + marks[-2]
    results = {
        result.eval_id: result for _, shard in committed_results(run, set()) for result in shard
    }
    for amount in amounts:
        error = results[f"eval_{amount}"].error
        assert (None if error is None else error["code"]) == (
            None if amount > 0 else "ProcessEndedError"
        )


def test_a_process_that_hands_a_run_back_does_not_count(tmp_path: Path) -> None:
    run = planned(tmp_path, [1])
    for _ in range(4):
        assert exit_code(begin_and_hand_back, run) == 0
    assert attempt(run) == 0
    ((result,),) = [shard for _, shard in committed_results(run, set())]
    assert result.error is None


@pytest.mark.extended
def test_a_service_that_an_eval_kills_finishes_the_others(tmp_path: Path) -> None:
    """Two evals of one run kill the service, and a run beside it is not harmed."""

    def start(served: Service, amounts: list[int]) -> str:
        workflow = served.register(deadly_workflow(tmp_path / "marks"))
        for amount in amounts:
            body = eval_body(workflow, {"kind": "exists"}, path=None, amount=amount)
            del body["source"]["handle_inputs"]["input-json-1"]
            served.post(EVALS, body)
        return str(served.post(RUNS, {"workflow_id": workflow}, status=202)["id"])

    runs: list[str] = []
    for _ in range(10):
        with service(tmp_path, "--rate", "0", "--lease", "1") as served:
            if not runs:
                runs = [start(served, amounts) for amounts in ([1, -1, 2, -2, 3], [4, 5])]
            assert served.process is not None
            try:
                ended = [served.ended(f"{RUNS}/{run}") for run in runs]
            except Exception:  # noqa: BLE001 - a request whose server dies raises many types
                assert served.process.wait(120) == -signal.SIGKILL
                continue
        break
    assert [run["lifecycle"]["status"] for run in ended] == ["completed", "completed"]
    counts = [run["counts"]["lifecycle_counts"] for run in ended]
    assert [(count["completed"], count["error"]) for count in counts] == [(3, 2), (2, 0)]
    marks = executions(tmp_path / "marks")
    assert max(marks[-1], marks[-2]) <= 3
