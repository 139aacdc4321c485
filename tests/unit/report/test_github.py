from __future__ import annotations

import re
from dataclasses import replace

import pytest

from evalcore.model.run import Decision
from evalcore.model.suite import Quarantine, QuarantineEntry
from evalcore.model.summary import Comparison, Difference, DifferenceKind, VariantComparison
from evalcore.report.github import MOST_OF_A_KIND, render
from tests.support.report_runs import MadeRun, assertion, case, item, run_of

COMMAND = re.compile(r"::(error|warning|notice) ([^:\n]*)::([^\n]*)")


def commands(run: MadeRun) -> list[tuple[str, dict[str, str], str]]:
    """Return level, properties and message of each command; anything else is an error."""
    found = []
    for line in "".join(render(run)).splitlines():
        match = COMMAND.fullmatch(line)
        assert match is not None, line
        properties = dict(part.split("=", 1) for part in match[2].split(","))
        found.append((match[1], properties, match[3]))
    return found


def test_a_failure_says_what_was_expected() -> None:
    run = run_of(case("bad", item("failed")))
    assert commands(run)[-1] == (
        "error",
        {"file": "suites/demo.eval.yaml", "title": "bad [default]%3A failed"},
        "says-yes: does not contain 'yes'%0A  expected: yes%0A  actual:   no, never",
    )


def test_the_first_command_sums_the_run_up() -> None:
    level, properties, message = commands(run_of(case("good"), case("bad", item("failed"))))[0]
    assert (level, properties["title"]) == ("error", "demo%3A fail")
    assert message == ("1 of 2 items passed, 1 failed, score 0.5000 (run 20260518T100000Z-0a1b2c)")


@pytest.mark.parametrize(
    ("decision", "level"),
    [
        (Decision.PASS, "notice"),
        (Decision.FAIL, "error"),
        (Decision.ERROR, "error"),
        (Decision.INCONCLUSIVE, "warning"),
    ],
    ids=str,
)
def test_the_summary_is_as_loud_as_the_decision(decision: Decision, level: str) -> None:
    assert commands(run_of(case("good")).with_report(decision=decision))[0][0] == level


def test_a_gate_that_failed_is_an_error() -> None:
    found = [
        entry
        for entry in commands(run_of(case("bad", item("failed"))))
        if "gate" in entry[1]["title"]
    ]
    assert found == [
        (
            "error",
            {"file": "suites/demo.eval.yaml", "title": "gate pass_rate%3A fail"},
            "pass rate 0.5 < 1",
        )
    ]


def test_a_failure_that_the_gates_allow_is_a_warning() -> None:
    run = run_of(case("bad", item("failed")), gates=()).with_report(
        decision=Decision.PASS, gates=()
    )
    assert [level for level, _, _ in commands(run)] == ["notice", "warning"]


def test_a_regression_is_a_warning() -> None:
    difference = Difference("new", "a", DifferenceKind.ASSERTION, 1.0, 0.0)
    compared = VariantComparison("new", "base", regressions=(difference,))
    run = run_of(case("a", variant="base"), comparison=Comparison((compared,)))
    assert commands(run)[-1] == (
        "warning",
        {"file": "suites/demo.eval.yaml", "title": "regression%3A a [new]"},
        "against base: passed → failed",
    )


def test_what_is_said_of_a_quarantined_case_is_a_notice() -> None:
    difference = Difference("new", "a", DifferenceKind.ASSERTION, 1.0, 0.0)
    compared = VariantComparison("new", "base", regressions=(difference,))
    run = run_of(
        case("a", item("failed"), variant="new"),
        case("b", item("failed"), variant="new"),
        comparison=Comparison((compared,)),
    )
    entry = QuarantineEntry("a", "2999-01-01", "ann", "flaky")
    run = replace(run, report=replace(run.report, quarantine=Quarantine((entry,))))
    levels = {properties["title"]: level for level, properties, _ in commands(run)}
    assert levels["regression%3A a [new]"] == levels["a [new]%3A failed"] == "notice"
    assert levels["b [new]%3A failed"] == "error"


@pytest.mark.parametrize("failed", [7, 8, 9, 10, 500])
def test_no_more_than_ten_errors_and_the_last_tells_of_the_others(failed: int) -> None:
    run = run_of(*(case(f"bad-{number}", item("failed")) for number in range(failed)))
    errors = [entry for entry in commands(run) if entry[0] == "error"]
    # The summary and the gate are errors, too.
    told = failed + 2 - MOST_OF_A_KIND + 1
    assert len(errors) == min(failed + 2, MOST_OF_A_KIND)
    assert ("more;" in errors[-1][2]) == (failed + 2 > MOST_OF_A_KIND)
    if failed + 2 > MOST_OF_A_KIND:
        assert errors[-1][2].startswith(f"{told} more;")


def test_foreign_text_cannot_begin_a_command() -> None:
    text = "x\n::error file=/etc/passwd::y\r%0A,:"
    checks = [assertion(text, "failed", message=text, actual=text, expected=text)]
    run = run_of(case(text, item("failed", assertions=checks)), suite=text)
    assert {properties["file"] for _, properties, _ in commands(run)} == {"suites/demo.eval.yaml"}
