"""Configurations of promptfoo as suites: the same verdicts, and notes on the rest."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from evalcore.errors import LoadError
from evalcore.importers.converted import Notes
from evalcore.importers.promptfoo import WORDS, Written, assertion_of_text
from evalcore.importers.promptfoo import test_of_row as row_as_test
from evalcore.importers.promptfoo_providers import (
    RenderError,
    json_path,
    read_prompts,
    render,
    rendered_prompt,
)
from evalcore.model.evidence import Metrics
from tests.support.conversions import FILES, converted, written
from tests.support.shell import evalcore

RESULTS: dict[str, list[Any]] = json.loads((FILES / "promptfoo/results.json").read_text("utf-8"))
# promptfoo's scores of these are of other formulas (the notes say so).
OTHER_SCORES = {"bleu", "rouge-n"}


def test_cases_pass_and_fail_as_in_promptfoo(tmp_path: Path) -> None:
    suites = [written("promptfoo", f"{name}.yaml", tmp_path) for name in RESULTS]
    ended = evalcore("run", *suites, "--json", store=tmp_path / "store")
    assert [report["suite"] for report in ended.lines] == list(RESULTS)
    for report in ended.lines:
        cases = report["cases"]
        ids = list(dict.fromkeys(case["id"] for case in cases))
        variants = list(dict.fromkeys(case["variant"] for case in cases))
        rows = {(ids.index(case["id"]), variants.index(case["variant"])): case for case in cases}
        assert len(rows) == len(RESULTS[report["suite"]])
        for number, variant, passed, score in RESULTS[report["suite"]]:
            case = rows[number, variant]
            assert case["passed"] == passed, case
            types = {each["type"] for item in case["items"] for each in item["assertions"]}
            if not types & OTHER_SCORES:
                assert case["score"] == pytest.approx(score, abs=1e-4), case


def test_a_judge_that_the_configuration_does_not_name_is_noted(tmp_path: Path) -> None:
    graded = "{type: llm-rubric, value: is kind%s}"
    tests = f"[{{assert: [{graded % ', provider: openai:o3'}, {graded % ''}]}}]"
    config = f"{{prompts: [hi], providers: [echo], tests: {tests}}}"
    (tmp_path / "promptfooconfig.yaml").write_text(config, "utf-8")

    suite, notes = converted(None, "promptfooconfig.yaml", tmp_path)

    (line,) = (note for note in notes if "no model that grades is named" in note)
    assert line == (
        "tests[0].assert[1]: no model that grades is named: the judge is gpt-4.1-2025-04-14 of "
        "openai, promptfoo's default (target 'judge-2'; write another model there)"
    )
    assert line in suite.read_text("utf-8")


def test_models_prompts_and_assertions_without_a_counterpart_are_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GROQ_API_KEY=a-key-of-a-test")
    suite, notes = converted("promptfoo", "models.yaml", tmp_path)
    content = yaml.safe_load(suite.read_text("utf-8"))
    targets = {target.pop("name"): target for target in content["targets"]}
    assert targets == {
        "openai:chat:gpt-4.1-mini": {"provider": "openai", "model": "gpt-4.1-mini"},
        "anthropic:messages:claude-sonnet": {
            "provider": "anthropic",
            "model": "claude-sonnet",
            "max_tokens": 20,
            "temperature": 0,
        },
        "local": {"provider": "openai", "model": "llama3", "base_url": "http://localhost:11434/v1"},
        "groq:llama-3": {
            "provider": "openai",
            "model": "llama-3",
            "base_url": "https://api.groq.com/openai/v1",
            "api_key": "${{ GROQ_API_KEY }}",
        },
        "web": {
            "provider": "http",
            "url": "http://127.0.0.1:9/ask",
            "method": "POST",
            "headers": {"X-Client": "evals", "Authorization": "Bearer ${{ EVAL_TOKEN }}"},
            "body": {"question": "{prompt}"},
            "response_path": "$.answers[0].text",
        },
        "exec: sh answer.sh --plain": {
            "provider": "command",
            "command": ["sh", "answer.sh", "--plain", "{prompt}"],
        },
        "judge": {"provider": "openai", "model": "gpt-4.1"},
        "judge-2": {"provider": "openai", "model": "o3"},
    }
    assert content["evalcore"] == {"iterations": 2, "limits": {"concurrency": 4}}
    assert [case["id"] for case in content["cases"]] == ["test-1", "nothing left", "test-3"]
    text = "\n".join(notes)
    for part in (
        "'extensions' is not taken over",
        "providers[1]: 'thinking' of a model",
        "a key is not copied",
        "the provider 'replicate:llama' is left out",
        "name GROQ_API_KEY in a .env file",
        "the provider 'vertex:gemini-pro' is left out",
        "prompts[1]: the prompt is left out: write.js is a program",
        "tests[3]: the tests are left out: more.py is a program",
        "tests[0].assert[3]: javascript: JavaScript is not taken over",
        "tests[0].assert[6]: is-sql: no counterpart",
        "tests[1].assert[0]: contains: the transform",
        "tests[2]: 'provider' of a test",
        "tests[2].assert[2]: under a 'threshold': the score is that of the others",
    ):
        assert part in text
    # The suite says the same, and no key is in it.
    comments = suite.read_text("utf-8")
    assert all(f"# - {note}\n" in comments for note in notes)
    assert "sk-literal" not in comments
    assert "sk-header" not in comments


def test_a_test_whose_assertions_have_no_counterpart_is_left_out(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "prompts: [hello]\nproviders: [echo]\ntests:\n"
        "  - {assert: [{type: javascript, value: 'true'}]}\n"
        "  - {assert: [{type: contains, value: hell}]}\n"
    )
    suite, notes = converted(None, config, tmp_path)
    assert [case["id"] for case in yaml.safe_load(suite.read_text())["cases"]] == ["test-2"]
    assert "tests[0]: the test is left out: nothing of it has a counterpart" in notes


def test_a_python_provider_gets_its_config_and_answers_with_cost_and_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "billed_provider.py").write_text(
        "async def call_api(prompt, options, context):\n"
        "    if prompt == 'down':\n"
        "        return {'error': 'the model is down'}\n"
        "    usage = {'total': 12, 'prompt': 9, 'completion': 3}\n"
        "    return {'output': options['config'], 'cost': 0.25, 'tokenUsage': usage}\n"
    )
    config = tmp_path / "c.yaml"
    config.write_text(
        "prompts: [a]\n"
        "providers: [{id: 'file://billed_provider.py', config: {region: '{{ env.REGION }}'}}]\n"
    )
    (tmp_path / ".env").write_text("REGION=eu\n")
    suite, _ = converted(None, config, tmp_path)
    (target,) = yaml.safe_load(suite.read_text("utf-8"))["targets"]
    assert target["config"] == {"region": "${{ REGION }}"}
    monkeypatch.syspath_prepend(tmp_path)
    answer = runpy.run_path(str(tmp_path / "c_checks.py"))["provider_1"]
    context = SimpleNamespace(metadata=None, config={"region": "eu"})
    evidence = answer("a", context=context)
    assert evidence.output == '{"region": "eu"}'
    assert evidence.metrics == Metrics(cost_usd=0.25, input_tokens=9, output_tokens=3)
    with pytest.raises(RuntimeError, match="the model is down"):
        answer("down", context=context)


def test_nothing_left_is_a_mistake_that_says_why(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("prompts: [file://p.js]\nproviders: [echo]\n")
    with pytest.raises(LoadError, match=r"nothing is left of it: .*p\.js is a program"):
        converted(None, config, tmp_path)


def test_mistakes_of_a_test_name_its_position(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("prompts: [a]\ntests: [{assert: [{type: contains, threshold: x}]}]\n")
    with pytest.raises(LoadError, match=r"tests\[0\]\.assert\[0\]: expected a number, got 'x'"):
        converted(None, config, tmp_path)


@pytest.mark.parametrize(
    ("cell", "assertion"),
    [
        ("contains: tea", {"type": "contains", "value": "tea"}),
        ("not-icontains-any: a, b", {"type": "not-icontains-any", "value": "a, b"}),
        ("levenshtein(2): tea", {"type": "levenshtein", "value": "tea", "threshold": 2.0}),
        ("grade: is polite", {"type": "llm-rubric", "value": " is polite".strip()}),
        ("python: len(output) > 1", {"type": "python", "value": "len(output) > 1"}),
        ("fn: output.length", {"type": "javascript", "value": "output.length"}),
        ("is-json", {"type": "is-json"}),
        ("note: plain text", {"type": "equals", "value": "note: plain text"}),
    ],
)
def test_cells_of_tables_are_assertions(cell: str, assertion: dict[str, Any]) -> None:
    assert assertion_of_text(cell) == assertion


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("output", "$"),
        ("JSON.parse(output)", "$"),
        ("JSON.parse(output).a[0].b", "$.a[0].b"),
        ("output?.a['b c'];", "$.a['b c']"),
        ("output.trim()", None),
    ],
)
def test_scripts_that_follow_a_path_are_jsonpath(script: str, path: str | None) -> None:
    assert json_path(script) == path


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{a}} {{ b }} {{missing}}|", "1 true |"),
        ("{{ f }}{{ l }}{{ m.x }}", "2x,yz"),
        ("{% for each in l %}{{ each | upper }}{% endfor %}", "XY"),
        ("{{ l.length }}{{ 'abc'.length }}", "23"),
        ("{{ m | dump }}", '{"x":"z"}'),
    ],
)
def test_templates_write_values_as_javascript_does(template: str, text: str) -> None:
    values = {"a": 1, "b": True, "f": 2.0, "l": ["x", "y"], "m": {"x": "z"}}
    assert render(template, values) == text


def test_templates_read_no_environment() -> None:
    with pytest.raises(RenderError, match="reads the environment"):
        render("{{ env.HOME }}", {})


def test_templates_reach_no_objects_of_python() -> None:
    with pytest.raises(RenderError):
        render("{{ ''.__class__.__mro__[1].__subclasses__() }}", {})


def test_json_prompts_are_messages_whose_values_need_no_escapes() -> None:
    raw = '[{"role": "system", "content": "{{s}}"}, {"role": "user", "content": "q"}]'
    assert rendered_prompt(raw, {"s": 'say "hi"\n'}) == [
        {"role": "system", "content": 'say "hi"\n'},
        {"role": "user", "content": "q"},
    ]


def test_what_counts_otherwise_than_in_promptfoo_is_noted(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "prompts: [{raw: hi, label: a, config: {temperature: 0}}, 'exec:./write.sh']\n"
        "providers: [openai:codex-sdk, {model: x, config: {a: 1}}, openai:ft:gpt-4o:me::1]\n"
        "tests:\n- assert:\n"
        "  - {type: contains-json, value: {properties: {a: {format: email}}}}\n"
        "  - {type: assert-set, metric: m, assert: [{type: bleu, value: a b}]}\n",
        "utf-8",
    )
    suite, notes = converted(None, "c.yaml", tmp_path)
    (target,) = yaml.safe_load(suite.read_text("utf-8"))["targets"]
    assert target["model"] == "ft:gpt-4o:me::1"
    text = "\n".join(notes)
    for part in (
        "prompts[0]: 'config' of a prompt is not taken over",
        "prompts[1]: the prompt is left out: exec:./write.sh is a program",
        "providers[0]: the provider 'openai:codex-sdk' is left out",
        "is left out: it has no 'id'",
        "contains-json: the first JSON object or array of the output counts",
        "tests[0].assert[0]: 'format' in a JSON Schema is not checked",
        "tests[0].assert[1]: 'metric' of an assert-set is not taken over",
        "bleu: texts that are short or share few words have other scores",
    ):
        assert part in text


def test_files_of_prompts_may_hold_several(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('prompt,label\n"Say, hi",Short\n,none\nBye,\n', "utf-8")
    (tmp_path / "b.txt").write_text("Say hi\n---\n\nSay\nbye\r\n---\r\n", "utf-8", newline="")
    prompts = [
        (prompt.raw, prompt.label)
        for name in ("a.csv", "b.txt")
        for prompt in read_prompts(f"file://{name}", tmp_path, Notes())
    ]
    assert prompts == [
        ("Say, hi", "Short"),
        ("Bye", None),
        ("Say hi", None),
        ("Say\nbye", None),
    ]


def test_columns_of_tables_say_what_else_a_test_has() -> None:
    row = {"q": "a", "__expected1": "similar: tea", "__threshold": "0.4", "__metadata:topic": "x"}
    assert row_as_test(row | {"__metric": "m", "__prefix": "p"}) == {
        "vars": {"q": "a"},
        "options": {"prefix": "p"},
        "metadata": {"topic": "x"},
        "assert": [{"type": "similar", "value": "tea", "threshold": 0.8}],
        "threshold": 0.4,
        "metric": "m",
    }


def test_providers_may_stand_in_files(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("[{id: echo, label: one}, openai:o3]", "utf-8")
    (tmp_path / "single.json").write_text('{"id": "anthropic:messages:claude"}', "utf-8")
    names = ["file://more.yaml", "echo", "file://single.json", "file://none.yaml"]
    config = {"prompts": ["hi"], "providers": names, "tests": [{"assert": []}]}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config), "utf-8")

    suite, notes = converted(None, "c.yaml", tmp_path)
    targets = yaml.safe_load(suite.read_text("utf-8"))["targets"]
    assert [target["name"] for target in targets] == [
        "one",
        "openai:o3",
        "echo",
        "anthropic:messages:claude",
    ]
    assert "providers[3]: the providers are left out: none.yaml: no such file" in notes


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ o | dump(2) }}", '{\n  "a": "é"\n}'),
        ("{{ l | selectattr('k') | dump }}", '[{"k":1}]'),
        ("{% for k, v in o %}{{k}}={{v}}{% endfor %}", "a=é"),
        ("{% if n[0] === 1 and n[1] !== 1 %}yes{% endif %}", "yes"),
    ],
)
def test_filters_and_loops_are_those_of_nunjucks(template: str, text: str) -> None:
    variables = {"o": {"a": "é"}, "l": [{"k": 1}, {}], "n": [1, 2], "s": "Hello World"}
    assert render(template, variables) == text


@pytest.mark.parametrize("kind", ["contains-any", "icontains-all"])
def test_a_list_written_as_text_may_hold_quoted_commas(kind: str) -> None:
    written = Written({"type": kind}, '"1,000",in stock, usd')
    assert WORDS[kind](written)["value"] == ["1,000", "in stock", "usd"]


def test_filters_with_other_results_are_refused() -> None:
    with pytest.raises(RenderError, match="No filter named 'round'"):
        render("{{ 2.5 | round }}", {})


def config_of(folder: Path, **parts: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the suite of a configuration and its notes."""
    written = {"prompts": ["{{q}}"], "providers": ["echo"], **parts}
    (folder / "promptfooconfig.json").write_text(json.dumps(written), "utf-8")
    suite, notes = converted(None, "promptfooconfig.json", folder)
    return yaml.safe_load(suite.read_text("utf-8")), notes


@pytest.mark.parametrize("where", ["test", "set"])
def test_a_threshold_of_0_decides_as_any_other(where: str, tmp_path: Path) -> None:
    asserted: list[dict[str, Any]] = [{"type": "equals", "value": "no"}]
    if where == "set":
        asserted = [{"type": "assert-set", "threshold": 0, "assert": asserted}]
    test = {"vars": {"q": "hi"}, "assert": asserted} | ({"threshold": 0} if where == "test" else {})

    suite, _ = config_of(tmp_path, tests=[test])

    assert suite["cases"][0]["assertions"][0]["threshold"] == 0
    assert evalcore("run", "promptfooconfig.eval.yaml", cwd=tmp_path).code == 0


def test_placeholders_that_nobody_fills_in_are_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("STAGE=test", "utf-8")
    service = {
        "url": "http://localhost/{{tenant}}",
        "headers": {"X-User": "{{user}}", "X-Env": "{{env.STAGE}}"},
        "body": {"a": ["{{prompt}}", "{{ lang | default('en') }}"]},
    }
    value = {"type": "object", "required": ["{{field}}"]}
    tests = [{"vars": {"q": "hi"}, "assert": [{"type": "is-json", "value": value}]}]
    providers = ["echo", {"id": "http", "config": service}, "exec: cat {{file}}"]

    suite, notes = config_of(tmp_path, providers=providers, tests=tests)

    named = [note for note in notes if "not filled in" in note]
    marks = (
        "{{tenant}}",
        "{{user}}",
        "{{ lang | default('en') }}",
        "{{file}}",
        "{{field}}",
    )
    assert [mark for note, mark in zip(named, marks, strict=True) if f": {mark} " not in note] == []
    assert suite["targets"][1]["headers"]["X-Env"] == "${{ STAGE }}"


@pytest.mark.parametrize(
    "body", ['{"m": {{prompt | dump}}}', '{"m": "{{prompt}}"}', '\n{"m": "{{ prompt }}"}']
)
def test_a_body_that_is_the_text_of_json_keeps_its_quotes(body: str, tmp_path: Path) -> None:
    http = {"id": "http", "config": {"url": "http://localhost/", "body": body}}
    suite, _ = config_of(tmp_path, providers=[http], tests=[{"vars": {"q": 'a "b"'}}])
    assert suite["targets"][0]["body"] == {"m": "{prompt}"}


def test_prompts_are_variants_of_the_same_case(tmp_path: Path) -> None:
    shutil.copytree(FILES / "promptfoo", tmp_path, dirs_exist_ok=True)
    chat = json.dumps([{"role": "system", "content": "s"}, {"role": "user", "content": "c {{q}}"}])
    prompts = [{"raw": "brief {prompt} {{q}}", "label": "brief"}, "long {{q}}", chat]
    expected = {"brief": 'brief {prompt} a "b"', "prompt-2": 'long a "b"', "prompt-3": 'c a "b"'}
    tests = [
        {"vars": {"q": 'a "b"'}, "assert": [{"type": "equals", "value": answer}]}
        for answer in expected.values()
    ]
    suite, _ = config_of(tmp_path, prompts=prompts, providers=["echo", "exec: echo"], tests=tests)

    (report,) = evalcore("run", "promptfooconfig.eval.yaml", "--json", cwd=tmp_path).lines

    assert [case["id"] for case in suite["cases"]] == ["test-1", "test-2", "test-3"]
    passed = [(case["id"], case["variant"]) for case in report["cases"] if case["passed"]]
    assert sorted(passed) == sorted(
        (f"test-{number}", f"{target} ({label})")
        for number, label in enumerate(expected, 1)
        for target in ("echo", "exec: echo")
    )


def test_tests_variables_and_defaults_may_be_kept_in_files(tmp_path: Path) -> None:
    (tmp_path / "default.yaml").write_text("vars: {town: Ghent}\nassert: [{type: is-json}]")
    (tmp_path / "tests.yaml").write_text("[{vars: file://vars.json}, {vars: {q: other}}]")
    (tmp_path / "vars.json").write_text('{"q": "hi"}')
    tests = [{"path": "file://tests.yaml"}]

    suite, _ = config_of(tmp_path, defaultTest="file://default.yaml", tests=tests)

    assert [case["input"] for case in suite["cases"]] == ["hi", "other"]
    assert [case["assertions"] for case in suite["cases"]] == [[{"type": "is-json"}]] * 2
