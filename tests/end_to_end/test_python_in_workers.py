"""Checks, scorers and gates run in worker processes; no process of a run outlives it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.processes import is_running, until
from tests.support.shell import Ended, Json, evalcore, start

pytestmark = pytest.mark.multiprocess

OWN = """
import os

def good(output, context): return {"passed": True, "score": 1.0, "reason": context["case_id"]}
def of_artifact(artifact): return artifact.output == "hello"
def prints(output):
    print("PRINTED")
    os.write(1, b"WRITTEN")
    return True
def dies(output): os._exit(0)
def odd(output): return object()
class Scorer:
    name = "mine"
    def score(self, artifact): return {"value": 0.5, "raw_value": len(artifact.output)}
def dying_scorer(artifact): os._exit(0)
def gate(report):
    print("GATE")
    return True, "fine"
def dying_gate(report): os._exit(0)
def slow(input):
    import time
    open(os.environ["EVAL_PIDS"], "a").write(f"{os.getpid()}\\n")
    time.sleep(3600)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(OWN)
    checks = ("good", "of_artifact", "prints", "dies", "odd")
    suite = {
        "name": "own",
        "flow": {"provider": "echo"},
        "variants": [{"id": "v"}],
        "scorers": [{"callable": "own:Scorer"}, {"callable": "own:dying_scorer"}],
        "cases": [
            {
                "id": "a",
                "input": "hello",
                "assertions": [{"type": "python", "callable": f"own:{name}"} for name in checks],
            },
            # Else nothing is evaluated, and no gate is decided.
            {
                "id": "b",
                "input": "hello",
                "assertions": [{"type": "python", "callable": "own:good"}],
            },
        ],
        "gates": [{"gate": "custom", "callable": f"own:{name}"} for name in ("gate", "dying_gate")],
    }
    path = folder / "suite.yaml"
    path.write_text(json.dumps(suite))
    return evalcore("run", path, "--json", store=folder / "store", cwd=folder)


@pytest.fixture(scope="module")
def item(ended: Ended) -> Json:
    found: Json = ended.report["cases"][0]["items"][0]
    return found


def test_a_python_check_is_answered_or_in_error(item: Json) -> None:
    outcomes = [assertion["outcome"] for assertion in item["assertions"]]
    assert outcomes == ["passed", "passed", "passed", "error", "error"]


def test_a_scorer_scores_or_is_in_error(item: Json) -> None:
    mine, dying = item["scores"]
    assert (mine["name"], mine["value"], mine["raw_value"]) == ("mine", 0.5, 5)
    assert "exit code 0" in dying["error"]


def test_a_gate_decides_or_fails(ended: Ended) -> None:
    gates = {gate["name"]: gate for gate in ended.report["gates"]}
    assert (gates["own:gate"]["outcome"], gates["own:gate"]["message"]) == ("pass", "fine")
    assert gates["own:dying_gate"]["outcome"] == "fail"
    assert "exit code 0" in gates["own:dying_gate"]["message"]
    assert ended.code == 1


def test_single_assertions_are_graded_apart(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    lines = (
        json.dumps({"assertion": {"type": "python", "callable": f"own:{name}"}, "output": "x"})
        for name in ("dies", "prints")
    )
    ended = evalcore("assert", "--format", "suite", stdin="\n".join(lines), cwd=tmp_path)
    assert [answer["outcome"] for answer in ended.lines] == ["error", "passed"]


SLOW = {
    "execution": {"target": "t"},
    "targets": [{"name": "t", "provider": "python", "callable": "own:slow"}],
    "tests": [
        {"id": str(number), "input": "q", "assertions": [{"type": "contains", "value": "x"}]}
        for number in range(3)
    ],
}


@pytest.mark.parametrize(
    ("number", "flags"),
    [(signal.SIGKILL, ()), (signal.SIGTERM, ("--workers", "2"))],
    ids=["kill", "terminate workers"],
)
def test_no_worker_process_outlives_a_stopped_run(
    tmp_path: Path, number: signal.Signals, flags: tuple[str, ...]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "slow.eval.yaml").write_text(json.dumps(SLOW))
    noted = tmp_path / "pids"
    process = start(
        "run",
        "slow.eval.yaml",
        *flags,
        store=tmp_path / "store",
        cwd=tmp_path,
        out=tmp_path / "out",
        env={"EVAL_PIDS": str(noted)},
    )
    until(lambda: noted.exists() and noted.read_text(), process, why=(tmp_path / "out").read_text)
    os.kill(process.pid, number)
    process.wait(60)
    pids = {int(pid) for pid in noted.read_text().split()}
    until(lambda: not any(map(is_running, pids)))
