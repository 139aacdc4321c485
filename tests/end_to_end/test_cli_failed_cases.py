"""`run --failed RUN`: only the cases that did not pass in an earlier run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import INLINE, Ended, evalcore

SUITE = """name: NAME
evalcore: {variants: [{id: one}, {id: two}], gates: [{gate: pass_rate, threshold: 0}]}
targets: [{name: own, provider: python, callable: 'answers:answer'}]
execution: {target: own}
tests:
  - {id: right, input: yes, assertions: [{type: equals, value: yes}]}
  - {id: wrong, input: no, tags: [slow], assertions: [{type: equals, value: yes}]}
  - {id: broken, input: raise, assertions: [{type: equals, value: yes}]}
"""
CODE = "def answer(text):\n    return {'yes': 'yes', 'no': 'no'}[text]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "answers.py").write_text(CODE, "utf-8")
    for name in ("first", "second"):
        (tmp_path / f"{name}.eval.yaml").write_text(SUITE.replace("NAME", name), "utf-8")
    return tmp_path


def run(folder: Path, *words: str) -> Ended:
    return evalcore("run", "--json", *words, store=folder / "store", cwd=folder, env=INLINE)


def cases(ended: Ended) -> set[str]:
    (report,) = ended.lines
    return {case["id"] for case in report["cases"]}


def test_only_cases_that_did_not_pass_run_again(folder: Path) -> None:
    first = run(folder, "first.eval.yaml")
    again = run(folder, "--failed", "latest", "first.eval.yaml")
    assert (cases(first), cases(again)) == ({"right", "wrong", "broken"}, {"wrong", "broken"})
    # Other filters narrow them further.
    run_id = first.report["run"]["id"]
    narrowed = run(folder, "--failed", run_id, "--tag", "slow", "first.eval.yaml")
    assert cases(narrowed) == {"wrong"}


def test_of_several_suites_the_one_of_the_run_is_run(folder: Path) -> None:
    run(folder, "first.eval.yaml", "second.eval.yaml")
    again = run(folder, "--failed", "first/latest", "first.eval.yaml", "second.eval.yaml")
    assert [report["suite"] for report in again.lines] == ["first"]


def test_a_case_that_the_suite_lacks_now_is_a_warning(folder: Path) -> None:
    run(folder, "first.eval.yaml")
    suite = folder / "first.eval.yaml"
    suite.write_text(suite.read_text("utf-8").replace("id: broken", "id: mended"), "utf-8")
    again = run(folder, "--failed", "latest", "first.eval.yaml")
    assert cases(again) == {"wrong"}
    assert "--failed latest: no case has the id 'broken'" in again.err


def test_what_leaves_nothing_is_told(folder: Path) -> None:
    run(folder, "first.eval.yaml")
    for words, message in (
        (["--case", "right", "first.eval.yaml"], "the cases of --case passed; nothing was run"),
        (["second.eval.yaml"], "a run of suite 'first', not of 'second'; `--failed second/last`"),
        (["--resume", "latest"], "--resume cannot be combined with --failed"),
    ):
        ended = run(folder, "--failed", "latest", *words)
        assert ended.code == 2
        assert message in ended.err


def test_after_a_run_that_passed_nothing_is_left_to_run(folder: Path) -> None:
    run(folder, "--case", "right", "first.eval.yaml")
    ended = run(folder, "--failed", "latest", "first.eval.yaml")
    assert ended.code == 2
    assert "of suite 'first': every case passed; nothing was run" in ended.err
