"""The rules by which suite files are read: a run that is graded again keeps those of its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.model.suite import FILE_RULES
from tests.unit.formats.loading import load_text
from tests.unit.formats.test_iterations import FORMATS

CALL = "{type: tool-trajectory, mode: exact, expected: [{tool: search, args: {city: Rome}}]}"
SUITES = {
    "test-file": (
        f"tests: [{{id: a, input: x, fixtures: {{output: x}}, assertions: [{CALL}]}}]\n"
        "evalcore: {name: s}"
    ),
    "suite": (
        "{name: s, flow: 'm:f', variants: [{id: v}], "
        f"cases: [{{id: c, input: x, assertions: [{CALL}]}}]}}"
    ),
}


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_a_suite_says_by_which_rules_its_file_was_read(tmp_path: Path, text: str) -> None:
    assert load_text(tmp_path, text).definition.file_rules == FILE_RULES
    assert load_text(tmp_path, text, file_rules=1).definition.file_rules == 1


@pytest.mark.parametrize(("rules", "match"), [(1, "superset"), (FILE_RULES, "exact")])
@pytest.mark.parametrize("text", SUITES.values(), ids=SUITES)
def test_a_trajectory_without_args_match_has_the_default_of_the_rules(
    tmp_path: Path, text: str, rules: int, match: str
) -> None:
    (case,) = load_text(tmp_path, text, file_rules=rules).cases
    (assertion,) = case.assertions
    params = assertion.params.get("params", assertion.params)
    assert [call["args_match"] for call in params["expected"]] == [match]
