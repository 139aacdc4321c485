"""Baselines from the shell: `decide`, variants, named runs, `compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.shell import CONFORMANCE, Ended, evalcore

CASES = json.loads((CONFORMANCE / "gates.json").read_text("utf-8"))["cases"]


def decide(*questions: Any) -> Ended:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in questions]
    return evalcore("decide", stdin="\n".join(lines) + "\n")


def test_decide_agrees_with_every_checked_case() -> None:
    ended = decide(*CASES)
    assert ended.code == 0
    found = {line["id"]: line["passed"] for line in ended.lines}
    assert found == {case["id"]: case["expected"]["passed"] for case in CASES}
    assert [line["id"] for line in ended.lines] == [case["id"] for case in CASES]


def test_decide_goes_on_after_a_line_that_is_no_question() -> None:
    wrong = {**CASES[0], "id": "w", "gate": {"gate": "passRate", "threshold": 1.5}}
    ended = decide("{", wrong, {"id": "x", "gate": "errors"}, CASES[1])
    assert ended.code == 2
    assert [line["outcome"] for line in ended.lines] == ["error", "error", "error", "pass"]
    assert "a number from 0 to 1" in ended.lines[1]["message"]
    assert ended.lines[2]["id"] == "x"


def test_decide_goes_on_after_a_number_that_no_table_holds() -> None:
    cases = [{"caseId": "c", "passed": True, "durationMs": 10**30}]
    wrong = {**CASES[0], "id": "w", "variants": [{"variantId": "base", "cases": cases}]}
    ended = decide({**CASES[0], "id": 10**30}, wrong, CASES[1])
    assert ended.code == 0
    assert [(line["id"], line["outcome"]) for line in ended.lines] == [
        *((None, "error"), ("w", "error"), (CASES[1]["id"], "pass"))
    ]
    assert "variants[0].cases[0].durationMs: a number of more than" in ended.lines[1]["message"]


def test_decide_reads_lines_after_a_byte_order_mark() -> None:
    ended = decide("\ufeff" + json.dumps(CASES[0]), CASES[1])
    assert (ended.code, [line["outcome"] for line in ended.lines]) == (0, ["fail", "pass"])


SUITE = """\
name: answers
execution: {{target: plain}}
targets:
  - {{name: plain, provider: mock, response: good answer}}
  - {{name: other, provider: mock, response: {other}}}
evalcore:
  variants: [{variants}]
  {baseline}
  gates: [{gates}]
tests:
  - {{id: one, input: a, assertions: [{{type: contains, value: answer}}]}}
  - {{id: two, input: a, assertions: [{{type: contains, value: good}}]}}
"""
BOTH = "{id: plain, target: plain}, {id: other, target: other}"


def write(
    folder: Path,
    *,
    other: str = "bad answer",
    variants: str = BOTH,
    baseline: str = "baseline: plain",
    gates: str = "no_regressions",
) -> Path:
    path = folder / "answers.eval.yaml"
    text = SUITE.format(other=other, variants=variants, baseline=baseline, gates=gates)
    path.write_text(text, "utf-8")
    return path


def run(path: Path, store: Path, *flags: str) -> Ended:
    return evalcore("run", "--json", path, *flags, store=store, cwd=path.parent)


def gate_of(ended: Ended, name: str = "no_regressions") -> dict[str, Any]:
    (gate,) = [gate for gate in ended.report["gates"] if gate["name"] == name]
    return dict(gate)


def test_a_worse_variant_fails_the_run(tmp_path: Path, store: Path) -> None:
    ended = run(write(tmp_path), store)
    assert ended.code == 1
    assert ended.report["summary"]["regressions"] == 2
    (entry,) = ended.report["comparison"]
    assert (entry["variant"], entry["baseline"]) == ("other", "plain")
    assert [(found["case"], found["kind"]) for found in entry["regressions"]] == [
        ("two", "assertion"),
        ("two", "score"),
    ]


def test_the_stored_report_is_the_one_that_was_printed(tmp_path: Path, store: Path) -> None:
    ended = run(write(tmp_path, gates="{gate: custom, name: mine, callable: rules:check}"), store)
    assert gate_of(ended, "mine")["outcome"] == "fail"  # there is no such module
    again = evalcore("report", "--json", ended.report["run"]["id"], store=store)
    assert again.report == ended.report


def test_the_callers_baseline_replaces_the_suites(tmp_path: Path, store: Path) -> None:
    ended = run(write(tmp_path), store, "--baseline", "other")
    assert ended.code == 0
    assert ended.report["summary"]["improvements"] == 2


def test_a_baseline_that_is_filtered_out_leaves_it_open(tmp_path: Path, store: Path) -> None:
    ended = run(write(tmp_path), store, "--variant", "other")
    assert ended.code == 3
    assert "(--variant plain)" in gate_of(ended)["message"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--baseline", "nope"], "no variant 'nope'"),
        (["--baseline", "20260101T000000Z-000000"], "no run"),
        (["--baseline", "plain", "--variant", "other"], "add --variant plain"),
        (["--gate", "required_cases=tow"], "Did you mean 'two'?"),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    flags: list[str], message: str, tmp_path: Path, store: Path
) -> None:
    ended = run(write(tmp_path), store, *flags)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert not store.exists()


ONE = "{id: only, target: plain}"


def test_a_first_run_has_nothing_to_compare_with(tmp_path: Path, store: Path) -> None:
    alone = write(tmp_path, variants=ONE, baseline="tags: []")
    assert run(alone, store).code == 3
    assert run(alone, store, "--gate", "no_regressions:first_run=pass").code == 0


def test_a_named_baseline_run_is_compared_with(tmp_path: Path, store: Path) -> None:
    first = run(write(tmp_path, variants=ONE, baseline="tags: []"), store)
    run_id = first.report["run"]["id"]
    assert evalcore("baseline", "set", "answers", run_id, store=store).code == 0
    same = run(tmp_path / "answers.eval.yaml", store)
    assert (same.code, same.report["comparison"][0]["run"]) == (0, run_id)

    worse = run(write(tmp_path, variants="{id: only, target: other}", baseline="tags: []"), store)
    assert worse.code == 1
    assert "two [only] assertion" in gate_of(worse)["message"]
    # What was compared is settled: the pointer may go.
    assert evalcore("baseline", "clear", "answers", store=store).code == 0
    again = evalcore("report", "--json", worse.report["run"]["id"], store=store)
    assert again.report == worse.report


def test_cases_that_a_filter_left_out_are_not_missing(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path, variants=ONE, baseline="tags: []")
    first = run(path, store, "--gate", "errors").report["run"]["id"]
    ended = run(path, store, "--case", "one", "--baseline", first)
    assert ended.code == 0
    assert ended.report["comparison"][0]["compared"] == 1


def test_baselines_are_set_shown_listed_and_cleared(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path, gates="errors")
    ids = [run(path, store).report["run"]["id"] for _ in range(2)]
    evalcore("baseline", "set", "answers", ids[0], store=store)
    replaced = evalcore("baseline", "set", path, "latest", "--json", store=store).report
    assert (replaced["run"], replaced["replaced"]) == (ids[1], ids[0])
    evalcore("baseline", "set", "answers", ids[0], "--name", "v1", store=store)
    listed = evalcore("baseline", "list", "--json", store=store)
    assert [(one["name"], one["run"]) for one in json.loads(listed.out)] == [
        ("main", ids[1]),
        ("v1", ids[0]),
    ]
    assert evalcore("baseline", "clear", "answers", store=store).code == 0
    shown = evalcore("baseline", "show", "answers", store=store)
    assert (shown.code, "it has: v1" in shown.err) == (2, True)


def test_a_run_of_another_suite_is_no_baseline(tmp_path: Path, store: Path) -> None:
    run_id = run(write(tmp_path, gates="errors"), store).report["run"]["id"]
    ended = evalcore("baseline", "set", "others", run_id, store=store)
    assert (ended.code, "is of suite 'answers'" in ended.err) == (2, True)


class TwoRuns(NamedTuple):
    """A run, a worse one, and their store."""

    good: str
    bad: str
    store: Path

    def compare(self, *flags: str | Path) -> Ended:
        return evalcore("compare", self.good, self.bad, *flags, store=self.store)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> TwoRuns:
    folder = tmp_path_factory.mktemp("two")
    good, bad = (
        run(write(folder, variants=variants, baseline="tags: []", gates="errors"), folder / "store")
        for variants in (ONE, "{id: renamed, target: other}")
    )
    return TwoRuns(good.report["run"]["id"], bad.report["run"]["id"], folder / "store")


def test_two_runs_are_compared(two_runs: TwoRuns) -> None:
    ended = two_runs.compare("--json")
    assert ended.code == 1
    (entry,) = ended.report["comparison"]
    assert (entry["variant"], entry["baseline"]) == ("renamed", "only")
    assert entry["score"]["difference"] == -0.5
    assert entry["passed"] == {"worse": 1, "better": 0, "p": 1.0, "method": "mcnemar, exact"}


def test_the_better_run_has_no_regression(two_runs: TwoRuns) -> None:
    ended = evalcore("compare", two_runs.bad, two_runs.good, store=two_runs.store)
    assert ended.code == 0
    assert "▲ two: failed → passed" in ended.out


def test_runs_without_a_common_variant_cannot_be_compared(
    two_runs: TwoRuns, tmp_path: Path
) -> None:
    both = run(write(tmp_path, gates="errors"), two_runs.store).report["run"]["id"]
    ended = evalcore("compare", two_runs.good, both, store=two_runs.store)
    assert (ended.code, "no variant 'plain' to compare with" in ended.out) == (3, True)
