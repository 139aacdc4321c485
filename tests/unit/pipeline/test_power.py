"""`evalcore plan --power`: what a suite finds, before and after it has a history."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import yaml
from click.testing import CliRunner

from evalcore.cli.main import cli


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    tests = [
        {
            "id": f"c{number}",
            "input": "x",
            "fixtures": {"output": "a" if number % 3 else "b"},
            "assertions": [{"type": "equals", "value": "a"}],
        }
        for number in range(30)
    ]
    path = tmp_path / "power.eval.yaml"
    path.write_text(yaml.safe_dump({"name": "power", "tests": tests}), "utf-8")
    return path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli, [*arguments])
    assert result.exit_code in {0, 1}, result.output
    return result.stdout


def test_without_history_the_variances_are_assumed(suite: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    text = invoke("plan", str(suite), "--power", "--store", store)
    assert "a drop of 0.03 needs 3876 cases with 1 iteration each" in text
    assert text.count("(assumed)") == 2
    power = orjson.loads(invoke("plan", str(suite), "--power", "--json", "--store", store))["power"]
    assert power["cases_needed"] == 3_876
    assert power["iterations_needed"] is None
    assert power["cases"] == 30
    assert 0.03 < power["smallest_drop"] < 1


def test_variances_come_from_the_history(suite: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    for _ in range(2):
        invoke("run", str(suite), "--store", store, "--json")
    printed = invoke("plan", str(suite), "--power", "--json", "--store", store)
    power = orjson.loads(printed)["power"]
    assert power["iteration_variance"] == 0
    assert power["sources"] == ["assumed", "measured in 2 runs"]


def test_a_change_that_was_taken_back_does_not_make_one_case_enough(tmp_path: Path) -> None:
    tests = [
        {"id": f"c{n}", "input": str(n), "assertions": [{"type": "equals", "value": "a"}]}
        for n in range(3)
    ]
    target = {"name": "own", "provider": "python", "callable": "answering:answer"}
    suite = {"name": "s", "targets": [target], "execution": {"target": "own"}, "tests": tests}
    path, store = tmp_path / "s.eval.yaml", str(tmp_path / "store")
    path.write_text(yaml.safe_dump(suite), "utf-8")
    for answer in ("'a'", "'b' if text == '1' else 'a'", "'a'"):
        code = f"def answer(text):\n    return {answer}\n"
        (tmp_path / "answering.py").write_text(code, "utf-8")
        invoke("run", str(path), "--store", store, "--json")
    printed = invoke("plan", str(path), "--power", "--json", "--store", store)
    power = orjson.loads(printed)["power"]
    assert power["sources"] == ["assumed", "measured in 3 runs"]
    assert power["cases_needed"] > 3


def test_a_drop_that_no_number_of_cases_finds_is_refused(suite: Path) -> None:
    result = CliRunner().invoke(cli, ["plan", str(suite), "--power", "--delta", "1e-300"])
    assert "1e-300 is not in the range" in f"{result.output}{result.exception}"
    assert result.exit_code != 0
