"""Loading script suites: every mistake with its file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from evalcore.errors import LoadError, Problem
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import json_schema, load_suite
from evalcore.model.suite import ErrorPolicy, Format, Suite
from tests.unit.formats.loading import write

SUITE = "suite.yaml"


def load(folder: Path, suite: str, script: str | None = None, **options: Any) -> Suite:
    write(folder, {SUITE: suite, **({} if script is None else {"script.yaml": script})})
    named = None if script is None else str(folder / "script.yaml")
    return load_suite(folder / SUITE, LoadOptions(**options), name=SUITE, script=named)


def problems(folder: Path, suite: str, script: str | None = None) -> tuple[Problem, ...]:
    with pytest.raises(LoadError) as raised:
        load(folder, suite, script)
    return raised.value.problems


def test_a_file_without_tests_says_so(tmp_path: Path) -> None:
    assert load(tmp_path, "tests: {}").warnings == (
        "line 1: the file has no tests; its score is 0.0",
    )


def one_test(statement: str) -> str:
    return f"suites:\n  s:\n    tests:\n      a:\n        do: {statement}\n"


STATEMENTS = {
    "no statement": ("{evl: 1}", "do", "has none of eval, call, if"),
    "two statements": ("{eval: 1, call: t}", "do", "this one has 'eval' and 'call'"),
    "an unknown key": ("{eval: 1, stor_as: x}", "do.stor_as", "Did you mean 'store_as'?"),
    "a name that is no text": ("{eval: 1, store_as: 5}", "do.store_as", "expected text"),
    "a syntax error": ("{eval: '${1 +}'}", "do.eval", "invalid syntax, in ${1 +}"),
    "a syntax error within": ("{eval: {x: ['${1 +}']}}", "do.eval.x[0]", "in ${1 +}"),
    "an unknown tool": (
        "{call: nothing}",
        "do.call",
        "there is no tool 'nothing'. Known: t.",
    ),
    "catch of a number": ("{call: t, catch: 5}", "do.catch", "the name of an exception class"),
    "if without then": ("{if: x}", "do.then", "is required"),
    "negative parallelism": (
        "{for_each: [1], parallelism: -1, do: {eval: 1}}",
        "do.parallelism",
        "at least 0",
    ),
    "a matcher with both": (
        "{match: x, matchers: [{case: a, pattern: b, then: {eval: 1}}]}",
        "do.matchers[0]",
        "this one has both",
    ),
    "a pattern that is none": (
        "{match: x, matchers: [{pattern: '(', then: {eval: 1}}]}",
        "do.matchers[0].pattern",
        "invalid pattern",
    ),
    "a script that is none": ("{starlark: 'def x(:'}", "do.starlark", "invalid syntax"),
}


@pytest.mark.parametrize(("statement", "path", "message"), STATEMENTS.values(), ids=STATEMENTS)
def test_a_wrong_statement_is_reported_where_it_stands(
    statement: str, path: str, message: str, tmp_path: Path
) -> None:
    script = "tools: [{name: t, description: d, do: {eval: 1}}]"
    (found,) = problems(tmp_path, one_test(statement), script)

    assert (found.file, found.line, found.path) == (SUITE, 5, f"suites.s.tests.a.{path}")
    assert message in found.message


LEVELS = {
    "an unknown key": ("suites: {}\nextra: 1", 2, "extra", "unknown key 'extra'"),
    "a part for aliases": ("suites: {}\nx-part: 1", 2, "x-part", "unknown key 'x-part'"),
    "no iterations": ("iterations: 0\nsuites: {}", 1, "iterations", "must be at least 1"),
    "iterations twice": (
        "iterations: 3\nevalcore: {iterations: 2}\nsuites: {}",
        2,
        "evalcore.iterations",
        "is given here and as 'iterations'",
    ),
    "a suite named by a number": (
        "suites:\n  1: {tests: {}}",
        2,
        "suites.1",
        "a key must be text, got the number 1; write it in quotes",
    ),
    "an unknown key of a test": (
        "suites: {s: {tests: {a: {\n  doo: {eval: 1}}}}}",
        2,
        "suites.s.tests.a.doo",
        "Did you mean 'do'?",
    ),
    "suites in a list": ("suites: [1]", 1, "suites", "expected a mapping of suites, got a list"),
}


@pytest.mark.parametrize(("suite", "line", "path", "message"), LEVELS.values(), ids=LEVELS)
def test_a_wrong_key_is_reported_where_it_stands(
    suite: str, line: int, path: str, message: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, suite)[0]

    assert (found.line, found.path) == (line, path)
    assert message in found.message


SCRIPT_MODEL = "models: [{name: default, provider: openai, model: m1, base_url: 'http://x/v1'}]\n"
VARIANT = (
    "evalcore: {variants: [{id: v, config: %s}]}\nsuites: {s: {tests: {t: {do: [{eval: 1}]}}}}"
)


@pytest.mark.parametrize(
    "models", ["[{name: default, model: m2}]", "{default: {model: m2}}"], ids=["list", "mapping"]
)
def test_a_variant_lays_models_over_the_scripts_in_both_forms(models: str, tmp_path: Path) -> None:
    suite = load(tmp_path, VARIANT % f"{{models: {models}}}", SCRIPT_MODEL)
    assert suite.definition.variants[0].config == {"models": {"default": {"model": "m2"}}}


CONFIGS = {
    "an unknown key": ("{model: m2}", "config.model", "Did you mean 'models'?"),
    "a model without a name": ("{models: [{model: m2}]}", "config.models[0].name", "is required"),
    "an option of the wrong kind": (
        "{models: {default: {temperature: hot}}}",
        "config.models.default.temperature",
        "valid number",
    ),
    "reasoning of an unknown kind": (
        "{models: {default: {reasoning: stripped}}}",
        "config.models.default.reasoning",
        "expected 'strip' or 'keep', got 'stripped'",
    ),
}


@pytest.mark.parametrize(("config", "path", "message"), CONFIGS.values(), ids=CONFIGS)
def test_a_mistake_in_the_config_of_a_variant_is_reported(
    config: str, path: str, message: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, VARIANT % config, SCRIPT_MODEL)[0]
    assert found.path == f"evalcore.variants[0].{path}"
    assert message in found.message


def test_a_tool_of_the_same_name_is_reported_with_both_places(tmp_path: Path) -> None:
    suite = """\
        shared:
          tools: [{name: t, description: d, do: {eval: 1}}]
        suites:
          s:
            tests:
              a:
                tools: [{name: t, description: d, do: {eval: 2}}]
                do: {call: t}
        """
    (found,) = problems(tmp_path, suite)

    assert (found.line, found.path) == (7, "suites.s.tests.a.tools[0]")
    assert found.message == "a tool 't' is defined already, at suite.yaml:2"


def test_a_suite_file_may_shadow_a_tool_of_the_script(tmp_path: Path) -> None:
    suite = (
        "shared: {tools: [{name: t, do: {eval: 1}}]}\nsuites: {s: {tests: {a: {do: {call: t}}}}}"
    )
    loaded = load(tmp_path, suite, "tools: [{name: t, do: {eval: 0}}]")

    assert [case.id for case in loaded.cases] == ["s/a"]
    assert not loaded.warnings


SCRIPTS = {
    "an unknown key": ("share: {}", "share", "Did you mean 'shared'?"),
    "a duplicate tool": (
        "shared: {tools: [{name: t, do: {eval: 1}}]}\ntools: [{name: t, do: {eval: 1}}]",
        "tools[0]",
        "script.yaml:1",
    ),
    "a model without a name": ("models: [{provider: openai}]", "models[0].name", "is required"),
    "an unknown key of a tool that asks a model": (
        "tools: [{name: t, import_tool: llm_workers.tools.llm_tool.build_llm_tool, "
        "config: {promt: x}}]",
        "tools[0].config.promt",
        "Did you mean 'prompt'?",
    ),
    "a key in the file": (
        "models: [{name: m, provider: openai, model: x, config: {api_key: sk-1}}]",
        "models[0].config.api_key",
        "must not stand in a file",
    ),
    "a server without a command": ("mcp: {s: {transport: stdio}}", "mcp.s.command", "is required"),
    "a secret of a server": (
        "mcp: {s: {transport: stdio, command: x, env: {API_KEY: abc}}}",
        "mcp.s.env.API_KEY",
        "must not stand in a file",
    ),
    "a secret in an argument of a server": (
        "mcp: {s: {transport: stdio, command: x, args: [--token, sk-literal-012345]}}",
        "mcp.s.args[1]",
        "write it as ${env.NAME}",
    ),
    "a secret in the address of a server": (
        "mcp: {s: {transport: streamable_http, url: 'http://x/?token=hunter2hunter2x'}}",
        "mcp.s.url",
        "'token' holds a secret",
    ),
    "a secret in a parameter of a model": (
        "models: [{name: m, provider: openai, model: x, extra: {api_key: hunter2hunter2x}}]",
        "models[0].parameters.extra.api_key",
        "'api_key' holds a secret",
    ),
    "a variable that no suite reads": ("env: {HOME: {}}", "env.HOME", "may not read"),
    "an unknown type": (
        "tools: [{name: t, input: [{name: x, type: strr}], do: {eval: 1}}]",
        "tools[0].input[0].type",
        "unknown type 'strr'",
    ),
    "a server that is not there": (
        "tools: [{import_tool: mcp:calc/add}]",
        "tools[0].import_tool",
        "has no server 'calc'",
    ),
    "what the other program has and we have not": (
        "tools: [{import_tool: llm_workers.tools.misc.user_input}]",
        "tools[0].import_tool",
        "there is no 'llm_workers.tools.misc.user_input' here",
    ),
}


@pytest.mark.parametrize(("script", "path", "message"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_mistake_in_a_script_is_reported_in_the_script(
    script: str, path: str, message: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, "suites: {s: {tests: {}}}", script)[0]

    assert (Path(found.file).name, found.path) == ("script.yaml", path)
    assert message in found.message


FETCH = "import_tool: llm_workers.tools.fetch.fetch_page_text"
ADDRESS = "http://127.0.0.1:1/x?key=hunter2hunter2x"
FETCHES = {
    "url": (f"{{do: [{{call: fetch_page_text, params: {{url: '{ADDRESS}'}}}}]}}",
            "do[0].params.url"),
    "header": ("{do: [{call: fetch_page_text, params: {url: 'http://x', "
               "headers: {Authorization: Bearer hunter2hunter2x}}}]}",
               "do[0].params.headers.Authorization"),
    "body of a tool": ("{do: [{call: fetch_page_text, params: {body: {token: hunter2hunter2x}}}]}",
                       "do[0].params.body.token"),
    "program": (f"{{do: [{{starlark: \"def run():\\n  return fetch_page_text('{ADDRESS}')\"}}]}}",
                "do[0].starlark"),
    "data": (f"{{data: {{page: '{ADDRESS}'}}, do: [{{eval: 1}}]}}", "data.page"),
    "tool": (f"{{tools: [{{{FETCH}, name: f, config: {{headers: {{X-Key: hunter2hunter2x}}}}}}], "
             "do: [{eval: 1}]}", "tools[0].config.headers.X-Key"),
}  # fmt: skip


@pytest.mark.parametrize(("test", "path"), FETCHES.values(), ids=FETCHES)
def test_a_literal_secret_of_a_fetch_is_a_mistake(test: str, path: str, tmp_path: Path) -> None:
    suite = f"shared: {{tools: [{{{FETCH}}}]}}\nsuites: {{s: {{tests: {{a: {test}}}}}}}"
    (found,) = problems(tmp_path, suite)

    assert found.path == f"suites.s.tests.a.{path}"
    assert "holds a secret" in found.message
    assert "hunter2" not in found.message


def test_a_reference_in_the_address_of_a_fetch_is_no_mistake(tmp_path: Path) -> None:
    call = "{call: fetch_page_text, params: {url: 'http://x/?key=${env.EVAL_KEY}'}}"
    suite = f"shared: {{tools: [{{{FETCH}}}]}}\nsuites: {{s: {{tests: {{a: {{do: [{call}]}}}}}}}}"

    assert load(tmp_path, suite).cases


INCLUDES = {
    "above": "!include ../other.yaml",
    "absolute": "!require /etc/hostname",
    "through a link": "!include link.yaml",
}


@pytest.mark.parametrize("tag", INCLUDES.values(), ids=INCLUDES)
def test_a_file_outside_the_folder_is_not_included(tag: str, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("tests: {}")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(tmp_path / "other.yaml")
    (found,) = problems(folder, f"suites:\n  s: {tag}\n")

    assert found.line == 2
    assert "lies outside" in found.message


def test_included_files_become_part_of_the_suite(tmp_path: Path) -> None:
    write(tmp_path, {"parts/s.yaml": "tests: {a: {data: {t: !include t.txt}, do: {eval: 1}}}\n"})
    write(tmp_path, {"parts/t.txt": "some text"})
    (case,) = load(tmp_path, "suites:\n  s: !require parts/s.yaml\n").cases

    assert case.input["data"] == {"t": "some text"}


def test_a_mistake_in_an_included_file_is_reported_in_that_file(tmp_path: Path) -> None:
    write(tmp_path, {"parts/s.yaml": "tests:\n  a:\n    doo: {eval: 1}\n"})
    found = problems(tmp_path, "suites:\n  s: !include parts/s.yaml\n")[0]

    assert found.file.endswith("parts/s.yaml")
    assert (found.line, found.path) == (3, "suites.s.tests.a.doo")


def test_a_required_file_has_to_be_there_an_included_one_has_not(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "suites:\n  s: !require no.yaml\n")
    assert "no such file" in found.message

    suite = load(tmp_path, "suites: {s: {data: {x: !include no.txt}, tests: {}}}")
    assert "taken as an empty text" in suite.warnings[0]


def test_files_that_include_each_other_are_refused(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "suites:\n  s: !include suite.yaml\n")

    assert "include each other too often" in found.message


def test_tests_are_cases_and_errors_score_zero(tmp_path: Path) -> None:
    suite = load(tmp_path, "iterations: 4\nsuites: {'a/b': {tests: {c/d: {do: {eval: 1}}}}}")
    (case,) = suite.cases

    assert (case.id, case.group, case.threshold) == ("a%2Fb/c/d", "a/b", 0.5)
    assert suite.definition.format is Format.SCRIPT_SUITE
    policy = suite.definition.policy
    assert (policy.iterations, policy.gates, policy.errors) == (4, (), ErrorPolicy.ZERO)


CONFORMANCE = Path(__file__).parents[2] / "conformance" / "script-suites"


@pytest.mark.parametrize("path", sorted(CONFORMANCE.glob("*/suite.yaml")), ids=str)
def test_a_suite_that_loads_fits_its_schema(path: Path) -> None:
    schema = json_schema("script-suite")

    Draft202012Validator(schema).validate(yaml.safe_load(path.read_text("utf-8")))


@pytest.mark.parametrize("statement", [case[0] for case in STATEMENTS.values()][:4])
def test_a_statement_that_does_not_load_does_not_fit_the_schema(statement: str) -> None:
    document = yaml.safe_load(one_test(statement))

    assert not Draft202012Validator(json_schema("script-suite")).is_valid(document)


def test_an_unknown_parameter_is_warned_of_and_strictly_a_mistake(tmp_path: Path) -> None:
    suite = "shared: {tools: [{name: t, do: {eval: 1}}]}\n" + one_test("{call: t, params: {x: 1}}")
    (warning,) = load(tmp_path, suite).warnings

    assert warning.endswith("tool 't' has no parameter 'x'; it is ignored")
    with pytest.raises(LoadError, match="has no parameter 'x'"):
        load(tmp_path, suite, strict=True)
