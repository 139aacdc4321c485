"""Numbers and texts from outside that no result can hold are errors of their item alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import Json, evalcore

TARGET = """
from evalcore.model.evidence import Evidence, Metrics

BAD = {"big": 2**63, "negative": -1, "nan": float("nan"), "infinite": float("inf"), "bool": True,
       "text": "12", "huge": 10**400}


def answer(question):
    if question in BAD:
        metrics = Metrics(input_tokens=BAD[question])
        return Evidence("fine", metrics=metrics)
    if question == "latest":
        return Evidence("fine", metrics=Metrics(latency_ms=float("inf")))
    if question == "surrogate":
        return "\\ud800"
    if question == "nul":
        return "fine\\x00"
    return "fine"


def score(output):
    return float("nan")
"""


def run(folder: Path, suite: Json, *more: str) -> Json:
    path = folder / "suite.eval.yaml"
    path.write_text(json.dumps(suite), "utf-8")
    (folder / "numbers_target.py").write_text(TARGET, "utf-8")
    ended = evalcore("run", "--json", path, *more, store=folder / "store", cwd=folder)
    assert ended.out, ended.err
    return ended.report


def items_of(report: Json) -> dict[str, Json]:
    return {case["id"]: case["items"][0] for case in report["cases"]}


def suite_of(target: Json, questions: list[str], **more: Any) -> Json:
    return {
        "targets": [{"name": "t", **target}],
        "execution": {"target": "t"},
        "assertions": [{"type": "contains", "value": "fine"}],
        "tests": [{"id": question, "input": question} for question in questions],
        **more,
    }


def test_what_a_python_target_measures_is_checked(tmp_path: Path) -> None:
    bad = ["big", "negative", "nan", "infinite", "bool", "text", "huge", "latest"]
    target = {"provider": "python", "callable": "numbers_target:answer"}
    items = items_of(run(tmp_path, suite_of(target, [*bad, "good", "nul", "surrogate"])))
    for name in bad:
        assert items[name]["status"] == "error", name
        measure = "latency_ms" if name == "latest" else "input_tokens"
        assert measure in items[name]["error"]["message"]
    assert items["good"]["outcome"] == items["nul"]["outcome"] == "passed"
    assert items["surrogate"]["status"] == "completed"


GRADER = r"""
import json, sys

json.load(sys.stdin)
answer = {"score": 1.0, "assertions": [{"text": "half \ud83d", "passed": True}], "n": float("nan")}
sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=%s).encode(%s, "surrogatepass"))
"""


@pytest.mark.parametrize(
    ("escaped", "charset"), [(True, "utf-8"), (False, "utf-8"), (True, "utf-8-sig")]
)
def test_a_graders_words_are_read_as_its_program_reads_them(
    tmp_path: Path, escaped: bool, charset: str
) -> None:
    (tmp_path / "grader.py").write_text(GRADER % (escaped, repr(charset)), "utf-8")
    suite = suite_of({"provider": "echo"}, ["a"])
    suite["assertions"] = [{"type": "code-grader", "command": ["python3", "grader.py"]}]

    report = run(tmp_path, suite)

    item = items_of(report)["a"]
    assert item["outcome"] == "passed", item
    assert "half \ufffd" in json.dumps(item, ensure_ascii=False)


def test_a_row_with_half_a_character_is_read_with_a_warning(tmp_path: Path) -> None:
    checks = '"assertions": [{"type": "contains", "value": "half"}]'
    row = (
        f'{{"id": "a", "input": "q", "output": "half \\ud83d", "metadata": {{"n": NaN}}, {checks}}}'
    )
    (tmp_path / "rows.jsonl").write_text(f"{row}\n", "utf-8")

    ended = evalcore("run", "--json", tmp_path / "rows.jsonl", store=tmp_path / "s", cwd=tmp_path)

    assert items_of(ended.report)["a"]["outcome"] == "passed"
    assert "rows.jsonl: test 'a': a character that UTF-8 cannot hold was replaced" in ended.err
    assert "test 'a': NaN or Infinity was replaced by null" in ended.err
    strict = evalcore("validate", "--strict", tmp_path / "rows.jsonl", cwd=tmp_path)
    assert strict.code == 2


def test_sums_of_the_largest_fixtures_overflow_nowhere(tmp_path: Path) -> None:
    metrics = {"input_tokens": 2**63 - 1, "output_tokens": 2**63 - 1, "latency_ms": 9e18}
    fixtures = {"output": "fine", "metrics": {**metrics, "cost_usd": 9e18}}
    suite = suite_of(
        {"provider": "echo"},
        ["a"],
        evalcore={
            "gates": [
                {"gate": "tokens_under", "max": 10},
                {"gate": "cost_under", "max": 1},
            ],
            "variants": [{"id": "base"}, {"id": "other"}],
            "baseline": "base",
        },
    )
    suite["tests"] = [
        {"id": f"t{number}", "input": "q", "fixtures": fixtures} for number in range(4)
    ]
    report = run(tmp_path, suite, "--export", str(tmp_path / "rows.csv"))
    assert report["counts"]["completed"] == 8
    assert report["decision"] == "fail"
    assert report["summary"]["total_tokens"] == pytest.approx(8 * 2**64)
    again = run(tmp_path, suite, "--reuse")
    assert again["counts"]["completed"] == 8


@pytest.mark.parametrize(
    "metadata",
    [{"n": 2**70}, {"n": "\x00"}, {"n\x00": 1}, {"n": "\ud800"}, {"n": "x" * 3_000_000}],
    ids=["integer", "nul", "nul-key", "surrogate", "large"],
)
def test_metadata_of_any_kind_can_be_stored_or_does_not_load(
    tmp_path: Path, metadata: Json
) -> None:
    suite = suite_of({"provider": "mock", "response": "fine"}, ["a", "b"])
    suite["tests"][0] |= {"metadata": metadata, "tags": ["x\x00"]}
    path = tmp_path / "suite.eval.yaml"
    path.write_text(json.dumps(suite), "utf-8")
    ended = evalcore("run", "--json", path, store=tmp_path / "store", cwd=tmp_path)
    assert "Traceback" not in ended.err
    if ended.code != 2:
        assert sum(ended.report["counts"][name] for name in ("completed", "error")) == 2
