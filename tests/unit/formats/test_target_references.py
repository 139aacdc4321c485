"""Test files: the targets that `execution.targets` lists."""

from __future__ import annotations

from pathlib import Path

from tests.unit.formats.loading import load_text, problems_of


def test_a_target_that_is_listed_twice_is_a_mistake(tmp_path: Path) -> None:
    text = """\
        targets: [{name: base, provider: echo}]
        execution: {targets: [base, base]}
        tests: [{id: a, input: hi, assertions: [{type: is-json}]}]
        """
    (problem,) = problems_of(tmp_path, text)

    assert problem.path == "execution.targets[1]"
    assert "listed twice" in problem.message


def test_a_default_target_that_is_not_listed_is_not_read(tmp_path: Path) -> None:
    text = """\
        targets: [{name: default, provider: no-such-kind}, {name: mine, provider: echo}]
        execution: {targets: [mine]}
        tests: [{id: a, input: hi, assertions: [{type: equals, value: hi}]}]
        """
    definition = load_text(tmp_path, text).definition

    assert list(definition.targets) == ["mine"]
    assert definition.default_target is None
