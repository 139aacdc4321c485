"""Assertions whose bounds leave the output no choice are warned about, in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.formats.loading import load_text, problems_of

WORKFLOW = "eval: {cases: [{id: a, fixtures: {d: x}, expected: {d: [%s]}}]}"
TEST = "tests: [{id: a, input: b, fixtures: {output: x}, assertions: [%s]}]"
SUITE = """
    name: s
    flow: 'json:loads'
    cases: [{id: a, fixtures: {output: x}, assertions: [%s]}]
    variants: [{id: v}]
"""
EVALS = """
    workflow:
      workflow: {name: w, entry: d}
      blocks: {d: {type: code, code: 'def main(data): return 1'}}
    evals:
      - name: a
        target: {type: block, block_id: d}
        source: {type: manual, handle_inputs: {input-json-0: {type: json, data: {}}}}
        assertion: {target: {output_handle_id: output-json-0}, condition: %s}
"""
NEVER_PASSES = [
    "{type: bleu, value: x, threshold: 2}",
    "{type: rouge-n, value: x, threshold: 1.5}",
    "{type: not-rouge-n, value: x, threshold: -1}",
    "{type: levenshtein, value: x, threshold: -1}",
    "{type: cost, threshold: -1}",
    "{type: latency, threshold: -5}",
    "{type: tokens, threshold: -1}",
    "{type: word-count, value: -1}",
    "{type: word-count, value: {max: -1}}",
    "{type: similar, value: x, threshold: 1.2, config: {target: e}}",
]
NEVER_FAILS = [
    "{type: bleu, value: x, threshold: 0}",
    "{type: not-bleu, value: x, threshold: 2}",
    "{type: word-count, value: {}}",
    "{type: word-count, value: {min: 0}}",
]
DECIDED = [(never, "pass") for never in NEVER_PASSES] + [(never, "fail") for never in NEVER_FAILS]
TARGETS = "targets: [{name: e, provider: openai, model: m, api_key: k}]"


def _warnings(folder: Path, text: str) -> str:
    (folder / "targets.yaml").write_text(TARGETS, encoding="utf-8")
    return "\n".join(load_text(folder, text).warnings)


@pytest.mark.parametrize(("assertion", "never"), DECIDED)
@pytest.mark.parametrize("format_", [WORKFLOW, SUITE], ids=["workflow", "suite"])
def test_bounds_that_decide_alone_are_warned_about(
    tmp_path: Path, format_: str, assertion: str, never: str
) -> None:
    warning = _warnings(tmp_path, format_ % assertion)
    assert f"can never {never}: " in warning
    assert "write " in warning


@pytest.mark.parametrize(
    "assertion",
    [
        "{type: tool-trajectory, mode: any_order, minimums: {x: 1}, threshold: 0}",
        "{type: llm-grader, prompt: x, judge: e, required: 0}",
        "{type: rubrics, criteria: [x], judge: e, threshold: 0}",
        "{type: code-grader, command: [a], threshold: 0}",
        "{type: composite, aggregator: {type: threshold, threshold: 0},"
        " assertions: [{type: equals, value: x}]}",
    ],
)
def test_a_test_file_is_warned_of_graders_that_never_fail(tmp_path: Path, assertion: str) -> None:
    assert "assertions[0]" in _warnings(tmp_path, TEST % assertion)
    assert "can never fail: the score is 0 to 1" in _warnings(tmp_path, TEST % assertion)


@pytest.mark.parametrize(
    ("condition", "never"),
    [
        ("{kind: length_compare, op: lt, expected: 0}", "pass"),
        ("{kind: length_compare, op: eq, expected: 1.5}", "pass"),
        ("{kind: length_compare, op: gte, expected: 0}", "fail"),
        ("{kind: between, lower: 1, upper: 1, inclusive: false}", "pass"),
        ("{kind: similarity_gte, reference: x, threshold: 0}", "fail"),
    ],
)
def test_a_saved_eval_is_warned_of_its_condition(
    tmp_path: Path, condition: str, never: str
) -> None:
    warning = _warnings(tmp_path, EVALS % condition)
    assert "evals[0].assertion.condition" in warning
    assert f"can never {never}" in warning


@pytest.mark.parametrize(
    "assertion",
    [
        "{type: bleu, value: x, threshold: 1}",
        "{type: not-rouge-n, value: x, threshold: 0.2}",
        "{type: levenshtein, value: x, threshold: 0}",
        "{type: latency, threshold: 0}",
        "{type: word-count, value: 0}",
        "{type: word-count, value: {min: 0, max: 9}}",
    ],
)
def test_bounds_that_an_output_can_miss_are_not_warned_about(
    tmp_path: Path, assertion: str
) -> None:
    assert _warnings(tmp_path, WORKFLOW % assertion) == ""


def test_a_strict_load_refuses_it_at_its_line(tmp_path: Path) -> None:
    text = WORKFLOW % "{type: bleu, value: x, threshold: 2}"
    (problem,) = problems_of(tmp_path, text, strict=True)
    assert problem.path == "eval.cases[0].expected.d[0].threshold"
    assert problem.message.startswith("'bleu' can never pass: BLEU is 0 to 1, and at least 2")
