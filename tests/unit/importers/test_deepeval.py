"""Datasets and test runs of DeepEval as suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalcore.errors import LoadError
from tests.support.conversions import FILES, converted, written
from tests.support.shell import evalcore


def read_tests(path: Path) -> dict[str, dict[str, Any]]:
    content = yaml.safe_load(path.read_text("utf-8"))
    return {test.pop("id"): test for test in content["tests"]}


@pytest.mark.parametrize("name", ["goldens.json", "goldens.csv"])
def test_goldens_are_tests_with_what_is_known_of_them_as_metadata(
    name: str, tmp_path: Path
) -> None:
    suite, notes = converted("deepeval", name, tmp_path)
    tests = read_tests(suite)

    assert list(tests) == ["ferry", "case-2"]
    context: Any = "Ferries: 9:00, 17:00"
    assert tests["ferry"] == {
        "input": "When does the ferry leave?",
        "expected_output": "At nine",
        "assertions": [{"type": "icontains", "value": "At nine"}],
        "metadata": {
            "port": "Kiel",
            "line": "A",
            "retrieval_context": [context] if name.endswith("json") else context,
            "source_file": "timetable.md",
        },
    }
    # A text of JSON stays a text, as DeepEval has it.
    assert tests["case-2"]["input"] == '{"ask": 1}'
    assert tests["case-2"]["fixtures"] == {"output": '{"a": 1}'}
    assert any(note.startswith("row 1: expected_tools: write") for note in notes)
    assert "1 of 3 rows are left out: they expect nothing to compare" in notes


def test_a_run_of_exact_matches_has_the_same_verdicts(tmp_path: Path) -> None:
    suite = written("deepeval", "run.json", tmp_path, check="equals")
    tests = read_tests(suite)
    assert tests["longer"]["tags"] == ["south"]

    (report,) = evalcore("run", suite, "--json", store=tmp_path / "store").lines
    cases = json.loads((FILES / "deepeval/run.json").read_text("utf-8"))["testCases"]
    assert {case["id"]: case["passed"] for case in report["cases"]} == {
        case["name"]: case["success"] for case in cases
    }


def test_other_metrics_and_conversations_are_named(tmp_path: Path) -> None:
    row = {"input": "a", "expectedOutput": "b", "metricsData": [{"name": "Faithfulness"}]}
    run = {"testRunData": {"testCases": [row], "conversationalTestCases": [{}]}}
    (tmp_path / "r.json").write_text(json.dumps(run), "utf-8")
    _, notes = converted(None, "r.json", tmp_path)
    text = "\n".join(notes)
    assert "metrics_data: metrics are not taken over" in text
    assert "conversationalTestCases are not taken over" in text

    (tmp_path / "c.json").write_text('[{"scenario": "s", "expected_outcome": "o"}]', "utf-8")
    with pytest.raises(LoadError, match="nothing is left of it: row 1: conversations"):
        converted(None, "c.json", tmp_path)
