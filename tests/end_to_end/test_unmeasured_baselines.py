"""Runs of which nothing is measured, from the shell: no gate passes on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import Ended, evalcore

GOOD, DEAD = ["python3", "-c", "print('good')"], ["python3", "-c", "raise SystemExit(7)"]


def write(folder: Path, command: list[str], *, errors: str = "zero", **more: Any) -> Path:
    """Write a suite of three cases that one command answers; `more` goes below `evalcore`."""
    path = folder / "s.eval.yaml"
    tests = [
        {"id": f"c{number}", "input": "x", "assertions": [{"type": "contains", "value": "good"}]}
        for number in range(3)
    ]
    section = {"errors": errors, "gates": ["no_regressions", "no_significant_regression"], **more}
    target = {"name": "t", "provider": "command", "command": command}
    suite = {"targets": [target], "execution": {"target": "t"}, "evalcore": section, "tests": tests}
    path.write_text(json.dumps(suite), "utf-8")
    return path


def run(path: Path, store: Path, *flags: str) -> Ended:
    return evalcore("run", "--json", path, *flags, store=store, cwd=path.parent)


def outcomes(ended: Ended) -> dict[str, str]:
    assert ended.out, ended.err
    return {gate["name"]: gate["outcome"] for gate in ended.report["gates"]}


OPEN = {"no_regressions": "inconclusive", "no_significant_regression": "inconclusive"}


@pytest.mark.parametrize(
    ("section", "gates"),
    [
        ({}, {"pass_rate": "inconclusive", "errors": "fail"}),
        ({"errors": "exclude", "max_error_share": 1.0}, {"pass_rate": "inconclusive",
                                                         "errors": "pass"}),
    ],
    ids=["default gate", "exclude"],
)  # fmt: skip
def test_a_run_that_evaluated_nothing_is_an_error(
    section: dict[str, Any], gates: dict[str, str], tmp_path: Path, store: Path
) -> None:
    path = write(tmp_path, DEAD)
    suite = json.loads(path.read_text())
    path.write_text(json.dumps(suite | {"evalcore": section}))
    ended = run(path, store)
    assert (ended.code, ended.report["decision"]) == (4, "error")
    assert outcomes(ended) == gates
    messages = {gate["name"]: gate["message"] for gate in ended.report["gates"]}
    unevaluated = "not evaluated: of 3 items 3 in error"
    assert {messages[name] for name in gates if gates[name] == "inconclusive"} == {unevaluated}


def test_saved_evals_whose_judge_gives_no_answer_are_an_error(tmp_path: Path, store: Path) -> None:
    judge_target = {"name": "judge", "provider": "command", "command": DEAD}
    (tmp_path / "targets.yaml").write_text(json.dumps([judge_target]))
    code = "def main(data):\n    return {'text': data['text']}"
    block = {"type": "code", "inputs": {"text": {"from": "workflow.text"}}, "code": code}
    workflow = {"name": "w", "entry": "say", "transitions": [{"from": "say", "to": None}]}
    saved = {
        "name": "polite",
        "target": {"type": "block", "block_id": "say"},
        "source": {
            "type": "manual",
            "handle_inputs": {"input-json-0": {"type": "json", "data": "Hello"}},
        },
        "assertion": {
            "target": {"output_handle_id": "output-json-0", "path": "text"},
            "condition": {"kind": "llm_judged_as", "rubric": "is polite"},
        },
    }
    definition = {"version": "1.0", "blocks": {"say": block}, "workflow": workflow}
    path = tmp_path / "saved.yaml"
    path.write_text(json.dumps({"workflow": definition, "evals": [saved]}))
    ended = run(path, store)
    assert (ended.code, ended.report["decision"]) == (4, "error")
    assert ended.report["counts"]["blocked"] == 1
    assert "1 assertion without an answer of the judge" in ended.report["gates"][0]["message"]
    refused = evalcore("baseline", "set", "saved", "last", store=store)
    assert (refused.code, "no completed run of a whole suite" in refused.err) == (2, True)
    assert "nothing was evaluated" in evalcore("history", "w", store=store).out


def test_a_run_whose_budget_allows_no_item_is_an_error(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path, GOOD, errors="fail", limits={"max_duration_s": 0.000001})
    ended = run(path, store)
    assert (ended.code, ended.report["counts"]["skipped"]) == (4, 3)
    assert "not evaluated: of 3 items 3 skipped" in ended.out


@pytest.fixture
def good_and_dead(tmp_path: Path, store: Path) -> tuple[str, str]:
    """A run that passes and one of which every item is in error."""
    good = run(write(tmp_path, GOOD), store).report["run"]["id"]
    return good, run(write(tmp_path, DEAD), store).report["run"]["id"]


def test_no_run_in_error_is_better_or_worse_than_another(
    good_and_dead: tuple[str, str], tmp_path: Path, store: Path
) -> None:
    good, dead = good_and_dead
    for pair in ((good, dead), (dead, good), (dead, dead)):
        compared = evalcore("compare", *pair, "--json", store=store)
        assert (compared.code, compared.report["outcome"]) == (3, "inconclusive")
        assert "of 3 cases 3 in error" in compared.report["message"]
    against = run(write(tmp_path, GOOD), store, "--baseline", dead)
    assert (against.code, against.out) == (2, "")
    assert "of a part of its suite (3 of 3 items in error) and cannot be a baseline" in against.err


def test_a_run_in_error_is_made_a_baseline_only_by_force(
    good_and_dead: tuple[str, str], tmp_path: Path, store: Path
) -> None:
    good, dead = good_and_dead
    refused = evalcore("baseline", "set", "s", "latest", store=store)
    assert (refused.code, refused.out) == (2, "")
    assert f"run {dead} is not measured whole: of 3 items 3 in error" in refused.err
    assert evalcore("baseline", "set", "s", good, store=store).code == 0
    assert outcomes(run(write(tmp_path, DEAD), store)) == OPEN
    assert evalcore("baseline", "set", "s", dead, "--force", store=store).code == 0
    assert outcomes(run(write(tmp_path, GOOD), store)) == OPEN


def test_a_baseline_variant_in_error_is_nothing_to_compare_with(
    tmp_path: Path, store: Path
) -> None:
    variants = [{"id": "base"}, {"id": "cand", "config": {"command": GOOD}}]
    ended = run(write(tmp_path, DEAD, variants=variants, baseline="base"), store)
    assert (ended.code, outcomes(ended)) == (3, OPEN)
    assert ended.report["comparison"][0]["measured"] == {
        "baseline": {"error": 3}, "candidate": {"measured": 3}, "both": 0,
    }  # fmt: skip


def test_a_baseline_is_set_by_a_file_that_refers_to_a_key(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path, GOOD)
    suite = json.loads(path.read_text())
    suite["targets"].append({"name": "m", "provider": "openai", "model": "m",
                             "api_key": "${{ OPENAI_API_KEY }}"})  # fmt: skip
    path.write_text(json.dumps(suite))
    first = evalcore("run", "--json", path, store=store, env={"OPENAI_API_KEY": "k"})
    assert first.code == 3, first.err
    ended = evalcore("baseline", "set", path, "latest", store=store, cwd=tmp_path)
    assert ended.code == 0, ended.err


# Bounds that every measured run keeps.
EASY = [
    *({"gate": "pass_rate", "threshold": 0.0}, {"gate": "score_at_least", "threshold": 0.0}),
    *({"gate": "latency_under", "max": 600_000}, {"gate": "error_rate_under", "threshold": 1.0}),
    *("required_assertions", {"gate": "reliable", "k": 1, "threshold": 0.0}),
]
COST = {"type": "cost", "threshold": 1, "required": True}  # a command's is not measured


def of_tests(path: Path, *tests: list[Any]) -> Path:
    """Write other assertions into a suite: those of each of its cases."""
    suite = json.loads(path.read_text())
    suite["tests"] = [
        {"id": f"c{number}", "input": "x", "assertions": each} for number, each in enumerate(tests)
    ]
    path.write_text(json.dumps(suite))
    return path


def test_a_run_of_nothing_but_blocked_items_is_inconclusive(tmp_path: Path, store: Path) -> None:
    ended = run(of_tests(write(tmp_path, GOOD, errors="fail", gates=EASY), [COST], [COST]), store)
    assert (ended.code, ended.report["counts"]["blocked"]) == (3, 2)
    assert set(outcomes(ended).values()) == {"inconclusive"}
    assert "nothing is measured: of 2 items 2 blocked" in ended.out


def test_a_baseline_is_a_run_of_the_suite_with_its_cases(tmp_path: Path, store: Path) -> None:
    holds = [{"type": "contains", "value": "good"}]
    path = of_tests(write(tmp_path, GOOD), holds, holds, holds, holds)
    first = run(path, store).report["run"]["id"]
    metrics = {"gate": "no_metric_regressions"}
    path = of_tests(write(tmp_path, GOOD, gates=[*OPEN, metrics]), holds, holds)
    half = run(path, store, "--baseline", first)
    assert outcomes(half) == {
        **OPEN, "no_regressions": "fail", "no_metric_regressions": "inconclusive",
    }  # fmt: skip
    assert "2 cases of the baseline not measured in the candidate" in half.out

    other = tmp_path / "other.eval.yaml"
    other.write_text(path.read_text())
    refused = run(other, store, "--baseline", first)
    assert (refused.code, refused.out) == (2, "")
    assert "is of suite 's', not of 'other'" in refused.err


def test_a_deleted_baseline_makes_no_first_run(tmp_path: Path, store: Path) -> None:
    first = run(write(tmp_path, GOOD), store).report["run"]["id"]
    assert evalcore("baseline", "set", "s", first, store=store).code == 0
    gate = {"gate": "no_regressions", "first_run": "pass"}
    path = write(tmp_path, GOOD, gates=[gate])
    assert run(path, store).code == 0
    shutil.rmtree(next(store.glob(f"runs/*/{first}")))
    ended = run(path, store)
    assert (ended.code, outcomes(ended)) == (3, {"no_regressions": "inconclusive"})
    assert f"the baseline run {first} is not in the store any more" in ended.out
