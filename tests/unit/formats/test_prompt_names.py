"""Prompts of models that read as the name of a file are sent as they stand, with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.formats.loading import load_text

TEST = "tests: [{id: a, input: b, assertions: [{type: is-json}]}]"


def warnings_of(folder: Path, target: str, config: str = "{}") -> tuple[str, ...]:
    return load_text(
        folder,
        f"targets: [{{name: default, provider: openai, model: m, {target}}}]\n"
        f"evalcore: {{variants: [{{id: one, config: {config}}}]}}\n{TEST}",
    ).warnings


@pytest.mark.parametrize(
    ("target", "config", "start"),
    [
        ("system_prompt: ./prompts/a.md", "{}", "target 'default': `system_prompt` is sent as"),
        ("promptTemplate: 'file://a.txt'", "{}", "target 'default': `prompt_template` is sent"),
        ("temperature: 0", "{systemPrompt: strict.md}", "variant 'one': `system_prompt` is sent"),
    ],
)
def test_a_prompt_that_names_a_file_is_warned_about_where_it_stands(
    tmp_path: Path, target: str, config: str, start: str
) -> None:
    (warning,) = warnings_of(tmp_path, target, config)
    assert warning.startswith(start)


@pytest.mark.parametrize(
    "prompt", ["Answer from README.md", "'a.md\\n{{input}}'", "Be terse.", "''"]
)
def test_a_prompt_that_is_a_text_is_not(tmp_path: Path, prompt: str) -> None:
    assert warnings_of(tmp_path, f"system_prompt: {prompt}") == ()


def test_a_target_that_is_no_model_may_have_such_an_option(tmp_path: Path) -> None:
    text = "targets: [{name: default, provider: python, callable: 'a:b', config: {x: ./a.md}}]"
    assert load_text(tmp_path, f"{text}\n{TEST}").warnings == ()
