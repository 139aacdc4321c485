"""The section `evalcore:` of the formats: `iterations` (a number, `auto`) and `evidence`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.model.suite import EvidencePolicy, Policy
from tests.unit.formats.loading import load_text, problems_of

TEST_FILE = (
    "tests: [{id: a, input: x, fixtures: {output: x}, assertions: [{type: contains, value: x}]}]\n"
)
FORMATS = {
    "test-file": f"{TEST_FILE}evalcore: {{iterations: auto:5}}",
    "script-suite": "tests: {a: {do: {eval: 1}}}\nevalcore: {iterations: auto:5}",
    "script-suite, its own key": "tests: {a: {do: {eval: 1}}}\niterations: auto:5",
    "suite": (
        "{name: s, flow: 'm:f', variants: [{id: v}], evalcore: {iterations: auto:5}, "
        "cases: [{id: c, input: x, assertions: [{type: behavior.no_errors}]}]}"
    ),
    "suite, its own key": (
        "{name: s, flow: 'm:f', variants: [{id: v}], iterations: auto:5, "
        "cases: [{id: c, input: x, assertions: [{type: behavior.no_errors}]}]}"
    ),
    "workflow-harness": (
        "workflow: {name: w, blocks: [{id: b, type: prompt, prompt: p}]}\n"
        "eval: {cases: [{id: c, inputs: {q: x}, fixtures: {b: {output: x}}, "
        "expected: {b: [{type: contains, value: x}]}}]}\n"
        "evalcore: {iterations: auto:5}"
    ),
}
MISTAKES = {
    "a MAX below 2": (
        "auto:1",
        "'auto:1' is not a number of iterations: a whole number from 1 to 1000000, 'auto'",
    ),
    "no count": ("0", "must be at least 1, got the number 0"),
    "more than a million": ("1000001", "must be at most 1000000, got the number 1000001"),
}


def policy(folder: Path, text: str, **options: Any) -> Policy:
    return load_text(folder, text, **options).definition.policy


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_each_format_adds_iterations_until_the_gates_are_decided(tmp_path: Path, text: str) -> None:
    loaded = policy(tmp_path, text)
    assert (loaded.iterations, loaded.auto_iterations) == (5, True)
    chosen = policy(tmp_path, text, iterations=3)
    assert (chosen.iterations, chosen.auto_iterations) == (3, False)


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_a_number_of_iterations_has_no_smaller_bound(tmp_path: Path, text: str) -> None:
    assert policy(tmp_path, text.replace("auto:5", "1001")).iterations == 1001
    (problem,) = problems_of(tmp_path, text.replace("auto:5", "1000001"))
    assert "must be at most 1000000, got the number 1000001" in problem.message


def test_auto_alone_is_at_most_8(tmp_path: Path) -> None:
    assert policy(tmp_path, f"{TEST_FILE}evalcore: {{iterations: auto}}").iterations == 8


@pytest.mark.parametrize(("written", "message"), MISTAKES.values(), ids=MISTAKES)
def test_anything_else_is_refused(tmp_path: Path, written: str, message: str) -> None:
    (problem,) = problems_of(tmp_path, f"{TEST_FILE}evalcore: {{iterations: {written}}}")
    assert (problem.line, problem.path) == (2, "evalcore.iterations")
    assert message in problem.message


def test_a_suite_stops_within_an_iteration_or_between_them(tmp_path: Path) -> None:
    text = f"{TEST_FILE}evalcore: {{iterations: auto, stop_when_decided: true}}"
    (problem,) = problems_of(tmp_path, text)
    assert problem.message == "'auto' decides after whole iterations; remove 'stop_when_decided'"
    chosen = policy(tmp_path, text, iterations=4, auto_iterations=True)
    assert (chosen.iterations, chosen.stop_when_decided) == (4, False)


@pytest.mark.parametrize("text", [FORMATS[name] for name in FORMATS if "its own" not in name])
def test_each_format_says_what_is_kept_of_an_item(tmp_path: Path, text: str) -> None:
    assert load_text(tmp_path, text).definition.evidence is EvidencePolicy.FULL
    text = text.replace("iterations: auto:5", "evidence: answers")
    assert load_text(tmp_path, text).definition.evidence is EvidencePolicy.ANSWERS
