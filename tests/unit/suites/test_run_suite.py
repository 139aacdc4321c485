"""`run_suite` and its report (docs/reference/suites.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalcore import (
    Artifact,
    EvalSuite,
    Score,
    SuiteError,
    SuiteReport,
    define_suite,
    gates,
    run_suite,
    run_suite_async,
    variant,
)
from evalcore.errors import UsageError


def my_workflow(case_input: Any, variant: Any) -> Any:
    if case_input["task"] == "break":
        raise RuntimeError("broken")
    code = f"app.get {case_input['task']} {variant.model}"
    outputs = {"plan": "a plan", "main": {"code": code}}
    return {"outputs": outputs, "metrics": {"latency_ms": 5}}


CASES: list[dict[str, Any]] = [
    {
        "id": "hello",
        "input": {"task": "hello"},
        "tags": ["smoke"],
        "assertions": [
            {"type": "behavior.no_errors"},
            {"type": "output.contains", "path": "outputs.main.code", "value": "app.get"},
            {"type": "metric.latency_ms.max", "value": 60_000},
        ],
    },
    {
        "id": "good",
        "input": {"task": "auth"},
        "assertions": [{"type": "output.contains", "value": "good"}],
    },
]


def suite_of(**changed: Any) -> EvalSuite:
    given: dict[str, Any] = {
        "name": "api",
        "flow": my_workflow,
        "cases": CASES,
        "variants": [variant("base", model="good"), variant("other", model="bad")],
        "baseline": "base",
        "gates": [gates.no_regressions(allow_metric_regressions=True), gates.pass_rate(0.9)],
    }
    return define_suite(**{**given, **changed})


def run(store: Path, suite: EvalSuite | None = None, **chosen: Any) -> SuiteReport:
    return run_suite(suite or suite_of(), store=store, **chosen)


def test_what_a_check_or_a_scorer_changes_is_its_own(tmp_path: Path) -> None:
    seen: list[Any] = []

    def check(artifact: Artifact) -> bool:
        main: dict[str, Any] = artifact.outputs["main"]
        seen.append((dict(main), dict(artifact.input)))
        main["code"] = artifact.input["task"] = "changed"
        return True

    def check_context(output: str, context: dict[str, Any]) -> bool:
        seen.append((None, dict(context["input"])))
        context["input"]["task"] = "changed"
        return True

    def scorer(artifact: Artifact) -> float:
        return float(check(artifact))

    case = {"id": "a", "input": {"task": "t"}, "assertions": [check, check_context, check]}
    suite = suite_of(cases=[case], scorers=[scorer], variants=[variant("base")], baseline=None)
    result = run(tmp_path, suite).case_results[0]
    code = {"code": "app.get t None"}
    assert sorted(seen, key=str) == sorted([(code, case["input"])] * 3 + [(None, case["input"])],
                                           key=str)  # fmt: skip
    assert result.artifact.outputs["main"] == code


def test_a_report_says_what_became_of_gates_cases_and_variants(tmp_path: Path) -> None:
    report = run(tmp_path)
    assert not report.passed
    summary = report.summary
    assert (summary.total_cases, summary.passed_cases, summary.failed_cases) == (4, 3, 1)
    assert (summary.errored_cases, summary.pass_rate, summary.regressions) == (0, 0.75, 2)
    assert (summary.gates_passed, summary.total_gates) == (1, 3)
    assert [(gate.name, gate.passed) for gate in report.gate_results] == [
        ("no_regressions", False),
        ("pass_rate", False),
        ("errors", True),
    ]
    assert [(one.variant, one.passed, one.pass_rate) for one in report.variants] == [
        ("base", 2, 1.0),
        ("other", 1, 0.5),
    ]
    found = [(entry["case"], entry["kind"]) for entry in report.comparison[0]["regressions"]]
    assert found == [("good", "assertion"), ("good", "score")]


def test_a_case_result_holds_the_evidence_and_what_was_checked(tmp_path: Path) -> None:
    first, *_, last = run(tmp_path).case_results
    assert (first.case, first.variant, first.iteration, first.passed) == ("hello", "base", 0, True)
    assert first.artifact.outputs["main"] == {"code": "app.get hello good"}
    assert first.artifact.state["plan"] == "a plan"
    assert first.artifact.metrics.latency_ms is not None
    contains = first.assertions[1]
    assert (contains.actual, contains.expected) == ("app.get hello good", "app.get")
    (failed,) = last.assertions
    assert (failed.passed, failed.expected) == (False, "good")
    assert failed.actual == '{"code": "app.get auth bad"}'


def test_a_suite_whose_gates_pass_has_passed(tmp_path: Path) -> None:
    assert run(tmp_path, variants=["base"], cases=["hello"]).summary.total_cases == 1
    assert run(tmp_path, suite_of(gates=[gates.pass_rate(0.5)])).passed


def test_iterations_are_added_until_the_gates_are_decided(tmp_path: Path) -> None:
    suite = suite_of(gates=[gates.pass_rate(1.0)], baseline=None)
    report = run(tmp_path, suite, iterations="auto:4")
    assert not report.passed
    executed = {each.iteration for each in report.case_results if each.status == "completed"}
    assert executed == {0}
    with pytest.raises(UsageError, match="'auto:x' is not a number of iterations"):
        run(tmp_path, suite, iterations="auto:x")


BROKEN = [{"id": "b", "input": {"task": "break"}}]
UNMEASURED = {"type": "metric.total_cost_usd.max", "value": 1}
BLOCKED = [{"id": "b", "input": {"task": "x"}, "assertions": [UNMEASURED]}]
EASY = [gates.error_rate_under(1.0), gates.latency_under(60_000), gates.required_assertions()]


@pytest.mark.parametrize(
    ("changed", "chosen", "decision"),
    [
        pytest.param({"cases": BROKEN, "gates": [], "errors": "zero"}, {}, "error", id="zero"),
        pytest.param({"cases": BROKEN, "errors": "exclude", "max_error_share": 1.0,
                      "gates": EASY}, {}, "error", id="exclude"),
        pytest.param({"cases": BLOCKED, "gates": []}, {}, "inconclusive", id="blocked"),
        pytest.param({"cases": [*CASES, *BROKEN], "gates": []}, {}, "error", id="one in error"),
        pytest.param({"cases": [*CASES, *BROKEN], "gates": [], "errors": "zero"}, {}, "pass",
                     id="one of zero"),
        pytest.param({"gates": [gates.no_regressions(first_run="pass")]}, {"variants": ["other"]},
                     "inconclusive", id="the baseline left out"),
    ],
)  # fmt: skip
def test_a_suite_has_passed_if_the_decision_is_pass(
    changed: Any, chosen: Any, decision: str, tmp_path: Path
) -> None:
    report = run(tmp_path, suite_of(**changed), **chosen)
    assert (report.decision, report.passed) == (decision, decision == "pass"), report.gate_results


def test_a_flow_that_raises_is_an_error_of_that_case_alone(tmp_path: Path) -> None:
    cases = [*CASES, {"id": "b", "input": {"task": "break"}}]
    report = run(tmp_path, suite_of(cases=cases, iterations=2), variants=["base"])
    assert (report.summary.errored_cases, report.summary.passed_cases) == (1, 2)
    errors = [result.error for result in report.case_results if result.case == "b"]
    assert [str(error).partition(" (")[0] for error in errors] == ["RuntimeError: broken"] * 2


class Length:
    name = "length"

    def score(self, artifact: Artifact) -> Score:
        return Score("length", 0.5, len(artifact.output or ""))


def test_scorers_are_in_the_results(tmp_path: Path) -> None:
    suite = suite_of(scorers=["latency", "cost", Length(), lambda artifact: 1 / 0])
    scores = {score.name: score for score in run(tmp_path, suite).case_results[0].scores}
    assert scores["latency"].value is not None
    assert scores["cost"] == Score("cost", None)
    assert scores["length"] == Score("length", 0.5, 30.0)
    assert str(scores["lambda"].error).startswith("ZeroDivisionError: division by zero (")


def test_functions_may_check_and_decide(tmp_path: Path) -> None:
    def mentions_app(output: str) -> bool:
        return "app" in output

    def by_artifact(artifact: Artifact) -> float:
        return 0.5 if artifact.outputs["main"] else 0.0

    def decide(report: Any) -> tuple[bool, str]:
        return report["counts"]["passed"] == 0, "as it should be"

    cases = [{"id": "c", "input": {"task": "x"}, "assertions": [mentions_app, by_artifact]}]
    gate = gates.custom("mine", "nothing passes", decide)
    report = run(tmp_path, suite_of(cases=cases, gates=[gate]))
    assert [(one.name, one.passed) for one in report.case_results[0].assertions] == [
        ("mentions_app", True),
        ("by_artifact", False),
    ]
    assert (report.gate_results[0].name, report.gate_results[0].message) == (
        "mine",
        "as it should be",
    )
    assert report.passed


def test_choices_leave_variants_cases_and_tags(tmp_path: Path) -> None:
    def chosen(**choices: Any) -> set[tuple[str, str]]:
        report = run(tmp_path, **choices)
        return {(result.case, result.variant) for result in report.case_results}

    assert chosen(variants=["other"]) == {("hello", "other"), ("good", "other")}
    assert chosen(tags=["smoke"]) == {("hello", "base"), ("hello", "other")}
    assert chosen(cases=["good"], variants=["base"]) == {("good", "base")}
    assert len(run(tmp_path, iterations=3).case_results) == 12


def test_another_baseline_may_be_chosen_among_the_variants(tmp_path: Path) -> None:
    assert run(tmp_path, baseline="other").comparison[0]["variant"] == "base"
    with pytest.raises(SuiteError, match="no variant is called 'nobody'"):
        run(tmp_path, baseline="nobody")


@pytest.mark.parametrize(
    ("choices", "mistake"),
    [
        ({"mode": "lives"}, "run_suite(): 'mode': unknown value 'lives'. Did you mean 'live'?"),
        ({"mode": None}, "'mode': unknown value null."),
        ({"case": ["hello"]}, "unknown key 'case'. Did you mean 'cases'?"),
        ({"cases": ["helo"]}, "Did you mean 'hello'?"),
        ({"iterations": 0}, "'iterations' must be at least 1, got the number 0"),
        ({"iterations": "3"}, "'iterations': expected a whole number from 1 to 1000000"),
        ({"isolation": "inlin"}, "'isolation': unknown value 'inlin'. Did you mean 'inline'?"),
        ({"allow_imports": "os"}, "'allow_imports': expected a list, got 'os'"),
        ({"baseline_run": ""}, "'baseline_run' must not be empty"),
        ({"tags": [5], "variants": "v"}, "'tags[0]': expected text, got the number 5"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(
    tmp_path: Path, choices: dict[str, Any], mistake: str
) -> None:
    with pytest.raises(UsageError) as raised:
        run(tmp_path, **choices)
    assert mistake in str(raised.value)


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(UsageError, match="'store' is a folder, 's3://bucket/prefix' or an open"):
        run_suite(suite_of(), store=5)  # type: ignore[arg-type]


def test_it_runs_inside_of_a_running_event_loop(tmp_path: Path) -> None:
    async def both() -> tuple[SuiteReport, SuiteReport]:
        suite = suite_of()
        return await run_suite_async(suite, store=tmp_path), run_suite(suite, store=tmp_path)

    one, other = asyncio.run(both())
    assert one.summary == other.summary


def test_the_default_store_is_that_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    run_suite(suite_of())
    assert (tmp_path / "store" / "runs" / "api").is_dir()


def test_the_events_of_a_workflow_are_in_the_artifact(tmp_path: Path) -> None:
    blocks = {"say": {"type": "code", "code": "def main(data): return 'hi'"}}
    cases = [{"id": "c", "input": {}, "assertions": [{"type": "contains", "value": "hi"}]}]
    suite = suite_of(flow={"blocks": blocks}, cases=cases, variants=["v"], baseline=None)
    (result,) = run(tmp_path, suite).case_results
    assert [event["type"] for event in result.artifact.events][:2] == [
        "workflow_started",
        "block_started",
    ]
    assert result.passed


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"variants": ["zz"]}, "variants: no variant is called 'zz'. Known: base, other."),
        ({"cases": ["helo"]}, "cases: no case has the id 'helo'. Did you mean 'hello'?"),
        ({"tags": ["smok"]}, "tags: no case has the tag 'smok'. Did you mean 'smoke'?"),
        ({"excluded_tags": ["smoke"], "cases": ["hello"]}, "leave no case: cases hello, excluded_"),
        ({"baseline_run": "base", "variants": ["other"]}, "baseline_run base: variants leaves it"),
        ({"baseline_run": "lost"}, "baseline: suite 'api' has no variant 'lost'"),
    ],
)
def test_a_choice_that_meets_nothing_is_told_in_the_words_of_python(
    tmp_path: Path, chosen: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as raised:
        run(tmp_path, **chosen)
    assert says in str(raised.value)
    assert "--" not in str(raised.value)
