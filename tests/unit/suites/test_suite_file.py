"""`run_suite` of a path: suites in files, from Python (docs/reference/suites.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore import SuiteReport, run_suite
from evalcore.errors import LoadError, NoCaseLeftError, UsageError

TESTS = """\
name: answers
tests:
  - {id: lima, input: Capital of Peru?, fixtures: {output: Lima.},
     assertions: [{type: contains, value: Lima}]}
  - {id: oslo, tags: [north], input: Capital of Norway?, fixtures: {output: Bergen.},
     assertions: [{type: contains, value: Oslo}]}
"""
SUITE = """\
name: sizes
flow: sizes:halve
variants: [{id: all}, {id: half, config: {half: true}}]
cases: [{id: four, input: aaaa, assertions: [{type: output.contains, value: aaa}]}]
gates: [{gate: pass_rate, threshold: 0.5}]
"""
FLOW = """\
def halve(case_input, variant):
    return case_input[: len(case_input) // 2] if variant.config.get("half") else case_input
"""
MODULE = """\
from evalcore import define_suite
from sizes import halve
suite = define_suite(name="mine", flow=lambda given, variant: halve(given, variant),
                     cases=[{"id": "one", "input": "a"}], variants=["all"])
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def passed(report: SuiteReport) -> dict[tuple[str, str], bool]:
    return {(each.case, each.variant): each.passed for each in report.case_results}


def test_a_test_file_runs_from_its_path(tmp_path: Path) -> None:
    path = write(tmp_path, "answers.eval.yaml", TESTS)
    report = run_suite(path, store=tmp_path / "store")
    assert (report.suite, report.decision, report.passed) == ("answers", "fail", False)
    assert passed(report) == {("lima", "default"): True, ("oslo", "default"): False}


def test_choices_lie_over_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "answers.eval.yaml", TESTS)
    report = run_suite(str(path), store=tmp_path / "store", excluded_tags=["north"])
    assert passed(report) == {("lima", "default"): True}
    with pytest.raises(NoCaseLeftError, match=r"tags: no case has the tag 'nord'\. Did you mean"):
        run_suite(path, store=tmp_path / "store", tags=["nord"])


@pytest.mark.multiprocess
def test_the_functions_of_a_file_are_found_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "sizes.py", FLOW)
    path = write(tmp_path, "sizes.yaml", SUITE)
    report = run_suite(path, store=tmp_path / "store", baseline="all")
    assert passed(report) == {("four", "all"): True, ("four", "half"): False}
    assert [entry["baseline"] for entry in report.comparison] == ["all"]


@pytest.mark.multiprocess
def test_a_gate_of_a_file_is_decided_where_its_functions_run(tmp_path: Path) -> None:
    write(tmp_path, "sizes.py", FLOW)
    write(tmp_path, "ending.py", "import os\ndef decide(report):\n    os._exit(1)\n")
    gate = "{gate: custom, name: last, description: ends, callable: 'ending:decide'}"
    path = write(tmp_path, "sizes.yaml", SUITE.replace("gates: [", f"gates: [{gate}, "))
    report = run_suite(path, store=tmp_path / "store")
    assert [gate.passed for gate in report.gate_results[:2]] == [False, True]


def test_the_one_suite_of_a_python_file_runs_with_its_functions(tmp_path: Path) -> None:
    write(tmp_path, "sizes.py", FLOW)
    path = write(tmp_path, "own_suite.py", MODULE)
    report = run_suite(path, store=tmp_path / "store")
    assert passed(report) == {("one", "all"): True}


@pytest.mark.parametrize("beside", [False, True], ids=["elsewhere", "beside the notebook"])
@pytest.mark.parametrize("changed", ["own_suite.py", "sizes.py"])
def test_a_file_that_was_changed_is_read_again(
    changed: str, beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if beside:
        monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path, "sizes.py", FLOW)
    check = '"assertions": [{"type": "contains", "value": "a"}]'
    path = write(tmp_path, "own_suite.py", MODULE.replace('"input": "a"', f'"input": "a", {check}'))
    assert run_suite(path, store=tmp_path / "store", isolation="inline").passed
    file = tmp_path / changed
    text = file.read_text("utf-8").replace('"value": "a"', '"value": "longer"')
    file.write_text(text.replace("else case_input", 'else "nothing"'), "utf-8")
    assert not run_suite(path, store=tmp_path / "store", isolation="inline").passed


def test_of_several_suites_none_is_chosen(tmp_path: Path) -> None:
    write(tmp_path, "sizes.py", FLOW)
    text = (
        MODULE
        + "other = define_suite(name='other', flow=halve, cases=[{'id': 'a'}], variants=['b'])\n"
    )
    path = write(tmp_path, "two_suites.py", text)
    with pytest.raises(UsageError, match=r"two_suites\.py has 2 suites \(mine, other\): import"):
        run_suite(path, store=tmp_path / "store")


def test_mistakes_of_a_file_are_raised_together_with_their_lines(tmp_path: Path) -> None:
    text = TESTS.replace("id: lima", "id: 5").replace(
        "type: contains, value: Oslo", "type: contians"
    )
    path = write(tmp_path, "wrong.eval.yaml", text)
    with pytest.raises(LoadError) as raised:
        run_suite(path, store=tmp_path / "store")
    assert [problem.line for problem in raised.value.problems] == [3, 6]
    assert not (tmp_path / "store").exists()
