"""Secrets in targets: what the plan keeps of them, and what a target is built with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.model.identity import target_identity
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.trust.secrets import Variables, address_values, resolved
from tests.unit.formats.loading import load_text, places_of, problems_of, write

TEST = "tests: [{id: a, input: b, criteria: c}]"
KEY = "sk-literal-0123456789"


def options_of(folder: Path, entry: str, **options: Any) -> Mapping[str, Any]:
    text = f"targets: [{{name: default, {entry}}}]\n{TEST}"
    return load_text(folder, text, **options).definition.targets["default"].options


@pytest.mark.parametrize(
    ("entry", "stored"),
    [
        ('provider: openai, model: m, api_key: "${{ EVAL_K }}"', {"api_key": "${{ EVAL_K }}"}),
        ('provider: openai, model: m, headers: {A: "x ${{ EVAL_K }}", B: plain}',
         {"headers": {"A": "x ${{ EVAL_K }}", "B": "plain"}}),
        ('provider: command, command: x, env: {A: "${{ EVAL_K }}", B: plain}',
         {"env": {"A": "${{ EVAL_K }}", "B": "plain"}}),
        ('provider: http, url: "http://x/${{ EVAL_K }}"', {"url": "http://x/${{ EVAL_K }}"}),
        ('provider: openai, model: m, base_url: "http://x/${{ EVAL_K }}"',
         {"base_url": "http://x/${{ EVAL_K }}"}),
        ('provider: python, callable: "a:b", config: {api_key: "${{ EVAL_K }}", plain: 1}',
         {"config": {"api_key": "${{ EVAL_K }}", "plain": 1}}),
        (f"provider: openai, model: m, api_key: {KEY}",
         {"api_key": '${{ literal ["suite.eval.yaml","default","api_key"] }}'}),
        (f"provider: http, url: 'http://x', headers: {{Authorization: Bearer {KEY}}}",
         {"headers": {"Authorization":
          '${{ literal ["suite.eval.yaml","default","headers","Authorization"] }}'}}),
        (f"provider: command, command: x, env: {{API_TOKEN: {KEY}}}",
         {"env": {"API_TOKEN": '${{ literal ["suite.eval.yaml","default","env","API_TOKEN"] }}'}}),
        (f'provider: openai, model: m, api_key: "${{{{ EVAL_NO:-{KEY} }}}}"',
         {"api_key": '${{ literal ["suite.eval.yaml","default","api_key"] }}'}),
    ],
    ids=["key", "header", "variable", "url", "base url", "config",
         "literal key", "literal header", "literal variable", "default"],
)  # fmt: skip
def test_the_plan_holds_references_only_and_a_target_gets_the_values(
    tmp_path: Path, entry: str, stored: dict[str, Any]
) -> None:
    environment = {"EVAL_K": "value"}
    options = options_of(tmp_path, entry, environment=environment)

    assert {name: options[name] for name in stored} == stored
    variables = Variables(environment, frozenset())
    given, _ = resolved(options, tmp_path, variables)
    values = address_values(options, tmp_path, variables)
    assert ("${{" in str(given)) == (values != {})
    given |= values
    assert (KEY in str(given)) == (KEY in entry)
    assert ("value" in str(given)) == ("EVAL_K" in entry)


def test_a_literal_secret_of_a_targets_file_above_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    (tmp_path / ".git").mkdir()
    write(
        tmp_path,
        {"targets.yaml": f"- {{name: default, provider: openai, model: m, api_key: {KEY}}}"},
    )
    options = load_text(folder, TEST).definition.targets["default"].options

    assert options["api_key"] == '${{ literal ["../targets.yaml","default","api_key"] }}'
    given, secrets = resolved(options, folder, Variables({}, frozenset()))
    assert given["api_key"] == KEY
    assert secrets == {("api_key",)}


@pytest.mark.parametrize(
    "reference",
    [
        '["other.yaml","default","api_key"]',
        '["suite.eval.yaml","nobody","api_key"]',
        '["suite.eval.yaml","default","nothing"]',
        '["below/targets.yaml","default","api_key"]',
        '["../../etc/passwd","default","api_key"]',
        "[",
    ],
)
def test_a_literal_secret_that_is_not_there_any_more_is_an_error(
    tmp_path: Path, reference: str
) -> None:
    text = f"targets: [{{name: default, provider: openai, model: m, api_key: {KEY}}}]\n{TEST}"
    write(tmp_path, {"suite.eval.yaml": text, "below/targets.yaml": text})
    options = {"api_key": f"${{{{ literal {reference} }}}}"}
    if reference == "[":
        assert resolved(options, tmp_path, Variables({}, frozenset()))[0] == options
        return

    with pytest.raises(TargetError, match="api_key is written literally in a file") as caught:
        resolved(options, tmp_path, Variables({}, frozenset()))
    assert KEY not in str(caught.value)


def test_a_target_cannot_use_the_secret_of_another_target(tmp_path: Path) -> None:
    targets = f"- {{name: rich, provider: openai, model: m, api_key: {KEY}}}"
    write(tmp_path, {"targets.yaml": targets})
    forged = """'${{ literal ["targets.yaml","rich","api_key"] }}'"""
    options = options_of(tmp_path, f"provider: openai, model: m, api_key: {forged}")
    given, _ = resolved(options, tmp_path, Variables({}, frozenset()))

    assert KEY not in str(given)


def test_a_providers_key_may_be_read_into_secret_options_only(tmp_path: Path) -> None:
    text = f"""\
        targets:
          - name: default
            provider: openai
            model: m
            api_key: ${{{{ OPENAI_API_KEY }}}}
            system_prompt: ${{{{ OPENAI_API_KEY }}}}
        {TEST}
        """
    found = problems_of(tmp_path, text, environment={"OPENAI_API_KEY": KEY})

    assert places_of(found) == [(6, "targets[0].system_prompt")]
    assert KEY not in str(found)


def test_a_variable_of_a_secret_option_that_is_not_set_is_a_mistake(tmp_path: Path) -> None:
    entry = '{name: default, provider: openai, model: m, api_key: "${{ EVAL_K }}"}'
    text = f"targets: [{entry}]\n{TEST}"

    assert places_of(problems_of(tmp_path, text)) == [(1, "targets[0].api_key")]
    assert load_text(tmp_path, text, secrets_required=False).definition.targets


def test_a_literal_key_of_a_variant_is_refused(tmp_path: Path) -> None:
    text = f"""\
        targets: [{{name: default, provider: openai, model: m}}]
        evalcore:
          variants:
            - {{id: a, config: {{api_key: "${{{{ EVAL_K }}}}"}}}}
            - {{id: b, config: {{api_key: {KEY}}}}}
        {TEST}
        """
    found = problems_of(tmp_path, text, environment={"EVAL_K": "x"})

    assert places_of(found) == [(5, "evalcore.variants[1].config.api_key")]
    assert KEY not in str(found)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"api_key": "b"}, True),
        ({"workers": 3, "requests_per_minute": 5, "tokens_per_minute": 6}, True),
        ({"grader_target": "g"}, True),
        ({"model": "n"}, False),
        ({"temperature": 1}, False),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_keys_and_pace_are_no_part_of_a_targets_identity(
    change: dict[str, Any], same: bool
) -> None:
    options = {"model": "m", "api_key": "a"}
    before = target_identity(Target("t", "openai", options), DEFAULT_VARIANT)

    after = target_identity(Target("t", "openai", {**options, **change}), DEFAULT_VARIANT)
    varied = target_identity(Target("t", "openai", options), Variant("default", config=change))
    unvaried = target_identity(Target("t", "openai", options), Variant("default"))
    assert (after == before) is same
    assert (varied == unvaried) is same


def test_a_target_may_use_another_ones_definition(tmp_path: Path) -> None:
    targets = f"""\
        - {{name: base, provider: openai, model: m, api_key: {KEY}, temperature: 1}}
        - {{name: middle, use_target: base, temperature: 0}}
        - {{name: default, use_target: middle, max_tokens: 5}}
        """
    write(tmp_path, {"targets.yaml": targets})
    text = "tests: [{id: a, input: hi, assertions: [{type: contains, value: b}]}]"
    target = load_text(tmp_path, text).definition.targets["default"]

    assert target == Target(
        "default",
        "openai",
        {
            "model": "m",
            "api_key": '${{ literal ["targets.yaml","base","api_key"] }}',
            "temperature": 0,
            "max_tokens": 5,
        },
    )


def test_fallbacks_are_part_of_the_target_and_graders_are_loaded(tmp_path: Path) -> None:
    text = f"""\
        targets:
          - {{name: default, provider: openai, model: m, fallback_targets: [b], grader_target: c}}
          - {{name: b, provider: mock, response: x, workers: 3}}
          - {{name: c, provider: echo}}
        {TEST}
        """
    targets = load_text(tmp_path, text).definition.targets

    assert targets["default"].options["fallback_targets"] == [
        {"name": "b", "kind": "mock", "options": {"response": "x"}}
    ]
    assert set(targets) == {"default", "b", "c"}


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ("provider: mock, response: x, use_target: b", "use_target"),
        ("response: x", "provider"),
        ("use_target: nobody", "use_target"),
        ("provider: mock, response: x, fallback_targets: [nobody]", "fallback_targets[0]"),
        ("provider: mock, response: x, grader_target: nobody", "grader_target"),
        ("provider: mock, response: x, workers: 0", "workers"),
        ("provider: openai, model: m, base_url: localhost", "base_url"),
        ("provider: openai, model: m, base_url: 'http://u:p@h/v1'", "base_url"),
        ("provider: openai, model: m, temprature: 1", "temprature"),
        ("provider: http, url: 'http://x', response_path: '$['", "response_path"),
    ],
)
def test_mistakes_in_a_target_are_reported_with_their_place(
    tmp_path: Path, entry: str, place: str
) -> None:
    text = f"targets:\n  - {{name: default, {entry}}}\n  - {{name: b, provider: echo}}\n{TEST}"

    assert places_of(problems_of(tmp_path, text)) == [(2, f"targets[0].{place}")]


AZURE = "https://x.example/v1?api-version=2024-06-01"


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (f"provider: http, url: 'http://x/a?key={KEY}'", "url"),
        (f"provider: http, url: 'http://x/a?q={{prompt}}&X-Amz-Security-Token={KEY}'", "url"),
        ("provider: http, url: 'http://x/a?sig=hunter2%2Bhunter2'", "url"),
        (f"provider: http, url: 'http://x/{KEY}/a'", "url"),
        (f"provider: http, url: 'http://x/a?subscription-key=${{{{ EVAL_NO:-{KEY} }}}}'", "url"),
        (f"provider: openai, model: m, base_url: '{AZURE}&api-key=hunter2hunter2x'", "base_url"),
        (f"provider: openai, model: m, parameters: {{extra_body: {{token: {KEY}}}}}",
         "parameters.extra_body.token"),
        ("provider: http, url: 'http://x', body: {a: [{userPassword: hunter2hunter2x}]}",
         "body.a[0].userPassword"),
        (f"provider: http, url: 'http://x', body: {{anything: {KEY}}}", "body.anything"),
        ("""provider: http, url: 'http://x', body: '{"password": "hunter2hunter2x", "q": 1}'""",
         "body"),
        ("provider: http, url: 'http://x', body: 'q={prompt}&client_secret=hunter2hunter2x'",
         "body"),
        ("provider: http, url: 'http://x', body: '<a><password>hunter2hunter2x</password></a>'",
         "body"),
        (f"provider: python, callable: 'a:b', config: {{api_key: {KEY}}}", "config.api_key"),
        ("provider: python, callable: 'a:b', config: {url: 'http://x?token=hunter2hunter2x'}",
         "config.url"),
        ("provider: python, callable: 'a:b', config: {headers: {X-Session: hunter2hunter2x}}",
         "config.headers.X-Session"),
        ("provider: cli, command: 'x {PROMPT}', healthcheck: {url: 'http://x?token=hunter2hunt-er'}",
         "healthcheck.url"),
        ("provider: command, command: [x, '--api-key=hunter2hunter2x', '{prompt}']", "command"),
        (f"provider: command, command: [x, --key, {KEY}, '{{prompt}}']", "command"),
        ("provider: command, command: 'curl -H \"Authorization: Bearer hunter2hunter2x\" {prompt}'",
         "command"),
        ("provider: cli, command: 'curl http://x?sig=hunter2hunter2x -d {PROMPT}'", "command"),
    ],
)  # fmt: skip
def test_a_literal_secret_in_what_the_plan_stores_is_a_mistake(
    tmp_path: Path, entry: str, place: str
) -> None:
    text = f"targets: [{{name: default, {entry}}}]\n{TEST}"
    (problem,) = problems_of(tmp_path, text)

    assert problem.path == f"targets[0].{place}"
    assert "write it as ${{ NAME }}" in problem.message
    assert not any(secret in problem.message for secret in (KEY, "hunter2"))


@pytest.mark.parametrize(
    "entry",
    [
        "provider: http, url: 'http://x/a?key=${{ EVAL_K }}&max_tokens=1234567890123456'",
        "provider: http, url: 'http://x/a?token={input.token}&key=test'",
        "provider: http, url: 'http://x', body: {password: '${{ EVAL_K }}', page_token: abc-123}",
        """provider: http, url: 'http://x', body: '{"pwd": "${{ EVAL_K }}", "q": "{prompt}"}'""",
        "provider: http, url: 'http://x', body: 'Say the key: open-sesame-1 {prompt}'",
        "provider: openai, model: m, parameters: {prompt_cache_key: suite-2024-11}",
        "provider: python, callable: 'a:b', config: {key: customer_id-1, token: '[CLS]-01'}",
        "provider: command, command: [x, '--api_key=${{ EVAL_K }}', --key=user_id-1, '{prompt}']",
        """provider: command, command: 'curl -H "Authorization: Bearer $EVAL_KEY" {prompt}'""",
        "provider: command, command: 'API_KEY=$OTHER_KEY-1 x --token=\"$TOKEN_OF_X1\" {prompt}'",
    ],
)  # fmt: skip
def test_references_placeholders_and_plain_values_are_no_literal_secrets(
    tmp_path: Path, entry: str
) -> None:
    assert options_of(tmp_path, entry, environment={"EVAL_K": "hunter2-model"})


@pytest.mark.parametrize("key", ["url", "body"])
def test_a_literal_secret_of_a_variant_is_a_mistake(tmp_path: Path, key: str) -> None:
    values = {"url": f"'http://x?key={KEY}'", "body": f"{{token: {KEY}}}"}
    text = f"""\
        targets: [{{name: default, provider: http, url: 'http://x', method: POST}}]
        evalcore: {{variants: [{{id: a, config: {{{key}: {values[key]}}}}}]}}
        {TEST}
        """
    (problem,) = problems_of(tmp_path, text)

    assert problem.path.startswith(f"evalcore.variants[0].config.{key}")
