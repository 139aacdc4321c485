"""`evalcore judge calibrate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.judged import given, judge, reply, write_suite
from tests.support.model_server import model_server
from tests.support.model_wire import Question
from tests.support.shell import Ended, evalcore


def write_labels(folder: Path, rows: list[Any]) -> Path:
    path = folder / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def calibrate(labels: Path, *flags: str) -> Ended:
    return evalcore("judge", "calibrate", labels.name, *flags,
                    store=labels.parent / "store", cwd=labels.parent)  # fmt: skip


def by_word(question: Question) -> str:
    """Pass what says good or that pretends to."""
    answer = question.prompt.rpartition("<<OUTPUT")[2]
    return reply(0.9 if "good" in answer or "fake" in answer else 0.1)


def labelled(n: int = 10) -> list[Any]:
    rows: list[Any] = [{"id": f"g{i}", "output": "good", "label": "pass"} for i in range(n)]
    rows += [{"id": f"b{i}", "output": "poor", "label": False} for i in range(n - 1)]
    return [*rows, {"id": "trap", "output": "fake", "label": 0.2}]


def test_verdicts_that_stand_in_the_file_are_compared_without_asking(tmp_path: Path) -> None:
    rows: list[Any] = []
    for count, label, verdict in (
        (45, True, True),
        (10, False, True),
        (5, True, False),
        (40, 0, 0),
    ):
        rows.extend({"label": bool(label), "judge": bool(verdict)} for _ in range(count))
    found = calibrate(write_labels(tmp_path, rows), "--json", "--observed", "0.7").report

    assert found["kappa"] == pytest.approx(0.70)
    assert found["confusion"] == {
        "true_pass": 45, "false_pass": 10, "false_fail": 5, "true_fail": 40,
    }  # fmt: skip
    assert found["corrected_accuracy"] == pytest.approx(0.714286, abs=1e-6)
    assert found["calibrated"] is True


def test_a_judge_is_asked_about_every_label(tmp_path: Path) -> None:
    labels = write_labels(tmp_path, labelled())
    with model_server(script=by_word) as server:
        tests = [given("poor", {"type": "llm-grader", "prompt": "Is it good?"})]
        path = write_suite(tmp_path, tests, targets=[judge(server)])
        ended = calibrate(labels, "--suite", path.name, "--json")
        asked = server.stats().requests
    found = ended.report

    assert (asked, found["n"], found["disagreements"]) == (20, 20, ["trap"])
    assert found["agreement"] == 0.95
    assert found["kappa"] == pytest.approx(0.9)
    assert len(found["prompt_sha256"]) == 64


def test_people_see_a_table(tmp_path: Path) -> None:
    rows = [{"label": "pass", "judge": "pass"}, {"label": "fail", "judge": "pass"}]
    ended = calibrate(write_labels(tmp_path, rows))

    assert "judge: pass  judge: fail" in ended.out
    assert "NOT CALIBRATED" in ended.out
    assert ended.code == 0
    assert calibrate(write_labels(tmp_path, rows), "--min-kappa", "0.5").code == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"output": "x"}], "labels.jsonl:1: has no 'label'"),
        ([{"label": "perhaps", "output": "x"}], "label: is pass or fail, or a score"),
        ([{"label": True}], "has no 'output' that a judge could be asked about"),
        ([{"label": True, "output": "x"}], "name the suite that judges: --suite FILE"),
        ([], "holds no label"),
        ([{"id": "a", "label": 1, "judge": 1}] * 2, "two labels have the id 'a'"),
    ],
)
def test_wrong_labels_are_told(tmp_path: Path, rows: list[Any], message: str) -> None:
    ended = calibrate(write_labels(tmp_path, rows))
    assert (ended.code, message in ended.err) == (2, True), ended.err
