"""`run_eval` (docs/reference/workflow-engine.md)."""

from __future__ import annotations

import pickle
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from evalcore import EvalRun, run_eval
from evalcore.errors import LoadError, UsageError

FILE = """
eval:
  threshold: 0.6
  cases:
    - {id: given, fixtures: {a: hi}, expected: {a: [{type: equals, value: hi}]}}
    - id: asked
      inputs: {q: you}
      fixtures: {b: given b}
      expected:
        a: [{type: contains, value: you}, {type: contains, value: nobody, weight: 3}]
        b: [{type: equals, value: given b}]
"""


def write(folder: Path, text: str = FILE) -> Path:
    path = folder / "wf.eval.yaml"
    path.write_text(dedent(text))
    return path


def run(folder: Path, executor: Any = None, text: str = FILE) -> EvalRun:
    return run_eval(write(folder, text), executor, store=folder / "store")


async def executor(case: Any) -> dict[str, Any]:
    return {"a": f"hello {case.inputs['q']}", "b": "what the executor says"}


def test_scores_go_from_assertions_over_blocks_and_cases_to_the_suite(tmp_path: Path) -> None:
    result = run(tmp_path, executor)
    given, asked = result.case_results
    assert (given.case_id, given.passed, given.score) == ("given", True, 1.0)
    assert asked.block_results["a"].score == 0.25
    assert not asked.block_results["a"].passed
    assert [one.outcome for one in asked.block_results["a"].results] == ["passed", "failed"]
    assert asked.block_results["b"].passed  # its fixture, not what the executor says
    assert (asked.passed, asked.score) == (False, 0.625)
    assert (result.score, result.threshold, result.passed) == (0.8125, 0.6, True)
    assert result.failed_cases == 1


def test_the_executor_sees_the_case(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(case: Any) -> dict[str, Any]:
        seen.append((case.id, dict(case.inputs), dict(case.fixtures), case.expected))
        return {}

    run(tmp_path, look)
    assert seen == [("asked", {"q": "you"}, {"b": "given b"}, ("a", "b"))]


def test_a_block_that_the_executor_leaves_out_was_never_reached(tmp_path: Path) -> None:
    asked = run(tmp_path, lambda case: {"b": "x"}).case_results[1]
    assert asked.block_results["a"].results[0].message == "block 'a' was never reached"


def test_an_executor_that_raises_ends_no_other_case(tmp_path: Path) -> None:
    def raises(case: Any) -> Any:
        raise KeyError(case.id)

    given, asked = run(tmp_path, raises).case_results
    assert given.passed
    assert (asked.passed, asked.score) == (False, 0.0)
    assert (asked.error or "").startswith("KeyError: 'asked' (tests/unit/suites/test_run_eval.py:")


def test_without_any_way_to_execute_the_others_results_are_kept(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as raised:
        run(tmp_path)
    assert str(raised.value) == (
        "Case 'asked' requires an executor (no fixtures for all expected blocks) "
        "but no executor was provided."
    )
    result = raised.value.result  # type: ignore[attr-defined]
    assert [case.case_id for case in result.case_results] == ["given"]
    assert (result.passed, result.case_results[0].passed) == (False, True)
    assert isinstance(result.case_results, list)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_the_project_s_own_engine_is_the_executor_where_it_can(tmp_path: Path) -> None:
    text = """
    blocks:
      a: {type: code, code: "def main(data): return 'hello ' + data['q']",
          inputs: {q: {from: workflow.q}}}
    workflow: {name: w, entry: a}
    eval:
      cases:
        - {id: one, inputs: {q: you}, expected: {a: [{type: equals, value: hello you}]}}
    """
    assert run(tmp_path, text=text).passed


def test_mistakes_of_the_file_are_load_errors(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no eval section"):
        run(tmp_path, text="blocks: {}")


@pytest.mark.parametrize("threshold", [-1, 1.5, float("nan"), float("inf"), True, "0.5"])
def test_a_threshold_that_is_no_share_is_refused(tmp_path: Path, threshold: Any) -> None:
    with pytest.raises(UsageError, match=r"run_eval\(\): 'threshold'"):
        run_eval(write(tmp_path), executor, store=tmp_path / "store", threshold=threshold)


def test_the_threshold_of_the_call_replaces_that_of_the_file(tmp_path: Path) -> None:
    result = run_eval(write(tmp_path), executor, store=tmp_path / "store", threshold=1)

    assert (result.passed, result.threshold) == (False, 1.0)


def test_evals_of_which_nothing_is_measured_do_not_pass_a_threshold_of_0(tmp_path: Path) -> None:
    def broken(case: Any) -> Any:
        raise RuntimeError(case.id)

    text = """
    eval:
      threshold: 0
      cases:
        - {id: asked, inputs: {q: you}, expected: {a: [{type: equals, value: hi}]}}
    """
    result = run(tmp_path, broken, text)
    assert (result.passed, result.score) == (False, 0.0)
    assert run(tmp_path, executor, text).passed
