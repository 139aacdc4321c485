"""Texts of targets: placeholders, prompts without the question."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.formats.loading import load_text, problems_of

TEST = "tests: [{id: a, input: b, assertions: [{type: is-json}]}]"


def warnings_of(folder: Path, target: str, config: str = "{}") -> tuple[str, ...]:
    return load_text(
        folder,
        f"targets: [{{name: default, provider: openai, model: m, {target}}}]\n"
        f"evalcore: {{variants: [{{id: one, config: {config}}}]}}\n{TEST}",
    ).warnings


_HTTP = "provider: http, url: 'http://127.0.0.1:9/{prompt}'"
UNKNOWN = {
    "a misspelt one": ("provider: openai, model: m, prompt_template: 'Say: {promt}'", "{promt}"),
    "a part of what has none": ("provider: openai, model: m, prompt_template: '{prompt.x}'", "x}"),
    "in an address": ("provider: http, url: 'http://127.0.0.1:9/?q={prompt}&r={quest}'", "{quest}"),
    "in a body": (f"{_HTTP}, method: POST, body: {{a: [{{b: '{{inputs.x}}'}}]}}", "{inputs.x}"),
    "in a header": (f"{_HTTP}, headers: {{X-Id: '{{case_id}}'}}", "{case_id}"),
    "in a command": ("provider: command, command: 'ask {promt}'", "{promt}"),
    "of a file": ("provider: cli, command: 'ask {FILES}', files_format: '@{pth}'", "{pth}"),
}


@pytest.mark.parametrize(("options", "placeholder"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_placeholder_is_a_mistake(
    tmp_path: Path, options: str, placeholder: str
) -> None:
    text = f"{TEST}\ntargets:\n  - {{name: default, {options}}}"
    (problem,) = problems_of(tmp_path, text)
    assert problem.line == 3
    assert "unknown placeholder" in problem.message
    assert placeholder in problem.message


@pytest.mark.parametrize(
    "options",
    [
        "provider: openai, model: m, prompt_template: '{prompt}: x_{i} \\\\boxed{x} ${y} { z } {}'",
        "provider: openai, model: m, prompt_template: 'As {\"a\": 1}: {input.a.0} {id}'",
        "provider: command, command: 'curl -w \"%{http_code}\" ${HOST}'",
        "provider: command, command: \"awk '{print}'\"",
        "provider: command, command: [python3, -c, \"print(f'{x}')\"]",
        f"{_HTTP}, method: POST, body: 'query {{ user{{name}} }}'",
    ],
)
def test_braces_of_other_languages_are_none(tmp_path: Path, options: str) -> None:
    text = f"{TEST}\ntargets: [{{name: default, {options}}}]"
    assert load_text(tmp_path, text).warnings == ()


WITHOUT = {
    "model": "provider: openai, model: m, prompt_template: 'In one word.'",
    "service": "provider: http, url: 'http://127.0.0.1:9/', body: {q: all}",
    "system prompt": "provider: openai, model: m, system_prompt: 'Answer {prompt}'",
}


@pytest.mark.parametrize("options", WITHOUT.values(), ids=WITHOUT)
def test_a_text_that_may_not_be_what_is_meant_is_warned_of_and_refused_when_strict(
    tmp_path: Path, options: str
) -> None:
    text = f"{TEST}\ntargets: [{{name: default, {options}}}]"
    (warning,) = load_text(tmp_path, text).warnings
    (problem,) = problems_of(tmp_path, text, strict=True)
    assert problem.message.removeprefix("target 'default': ") in warning


def test_the_variant_that_leaves_the_question_out_is_named(tmp_path: Path) -> None:
    (warning,) = warnings_of(tmp_path, "temperature: 0", "{promptTemplate: Why?}")
    assert warning.startswith("variant 'one': the question is not in `prompt_template`")
