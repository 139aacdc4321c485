"""Flags of `evalcore run` that choose cases and override what a suite says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import CONFORMANCE, evalcore


@pytest.mark.parametrize(
    ("flags", "code", "gates"),
    [
        pytest.param(["--gate", "required_assertions"], 0, ["required_assertions"], id="name"),
        pytest.param(
            ["--gate", "pass_rate:threshold=0,per_variant=true"], 0, ["pass_rate"], id="parameters"
        ),
        pytest.param(
            ["--gate", "pass_rate=0", "--gate", "tokensUnder=5"],
            1,
            ["pass_rate", "tokens_under"],
            id="several",
        ),
    ],
)
def test_gates_can_be_given_in_place_of_the_suites(
    flags: list[str], code: int, gates: list[str], suite: dict[str, Path], store: Path
) -> None:
    ended = evalcore("run", "--json", *flags, suite["failing"], store=store)
    assert ended.code == code
    assert [gate["name"] for gate in ended.report["gates"]] == [*gates, "errors"]


def test_a_threshold_replaces_that_of_the_workflow_file(store: Path) -> None:
    path = CONFORMANCE / "workflow-harness-suites" / "02.yaml"
    score = evalcore("run", "--json", path, store=store).report["score"]
    codes = [
        evalcore("run", "--threshold", str(threshold), path, store=store).code
        for threshold in (score, min(score + 0.01, 1.0))
    ]
    assert codes == [0, 0 if score == 1.0 else 1]


def test_a_warning_is_an_error_with_strict(suite: dict[str, Path], store: Path) -> None:
    assert evalcore("run", suite["warns"], store=store).code == 0
    strict = evalcore("run", "--strict", suite["warns"], store=store)
    assert strict.code == 2
    assert "Test 'unused': criteria is defined but no evaluator in assertions" in strict.err


def test_iterations_repeat_every_case(suite: dict[str, Path], store: Path) -> None:
    report = evalcore("run", "--json", "-n", "3", suite["passing"], store=store).report
    assert report["counts"]["planned"] == 9
    assert [[item["iteration"] for item in case["items"]] for case in report["cases"]] == [
        [0, 1, 2]
    ] * 3


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--insecure", "--rate", "nan"],
        ["runs", "watch", "latest", "--interval", "nan"],
        ["query", "select 1", "--timeout", "nan"],
        ["judge", "calibrate", "--min-kappa", "nan"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_number_that_is_none_is_a_usage_error(command: list[str], store: Path) -> None:
    ended = evalcore(*command, store=store)
    assert ended.code == 2
    assert "is not in the range" in ended.err


def test_a_script_without_a_script_suite_is_a_usage_error(
    suite: dict[str, Path], store: Path
) -> None:
    ended = evalcore("run", "--script", "script.yaml", suite["passing"], store=store)
    assert ended.code == 2
    assert "none of the files is a script suite" in ended.err
