"""Script suites through the real command line: conformance, the source's examples, tools."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from tests.support.model_server import ModelServer, model_server
from tests.support.model_wire import Answer, Question
from tests.support.servers import free_port, running, wait_until_open
from tests.support.shell import CONFORMANCE, Ended, evalcore

CASES = sorted((CONFORMANCE / "script-suites").iterdir())


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), "utf-8")


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None, **files: str) -> Ended:
    """Run the `suite` (and the `script`) with these texts."""
    write(folder, {f"{name}.yaml": text for name, text in files.items()})
    named = [f"{name}.yaml" for name in ("script", "suite") if name in files]
    return evalcore("run", *named, *arguments, store=folder / "store", cwd=folder, env=env)


def scores(ended: Ended) -> dict[str, float]:
    """Return the tests' scores by `suite/test`."""
    document = yaml.safe_load(ended.out)
    return {
        f"{suite}/{test}": score
        for suite, found in document["per_suite"].items()
        for test, score in found["per_test"].items()
    }


def assert_close(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_close(found[key], value)
    else:
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_conformance_case_gives_the_stated_scores(case: Path, tmp_path: Path) -> None:
    arguments = (case / "args.txt").read_text().split()
    ended = evalcore("run", case / "script.yaml", case / "suite.yaml", *arguments, store=tmp_path)

    assert ended.code == 0
    assert_close(yaml.safe_load(ended.out), yaml.safe_load((case / "expected.yaml").read_text()))


SCRIPT = """
    models:
      - {name: default, provider: openai, model: gpt-4o-mini}
      - {name: fast, provider: openai, model: gpt-4o}
"""

COMPLETE = """\
# evaluation-suite.yaml
shared:
  data:
    greetings:
      - "Hello"
      - "Hi"
      - "Hey"
  tools:
    - import_tool: llm_workers.tools.llm_tool.build_llm_tool
      name: llm

iterations: 5

suites:
  greeting_tests:
    data:
      language: "English"
    tests:
      recognizes_hello:
        data:
          input: "Hello there!"
        do:
          - call: llm
            params:
              prompt: |
                Does this message contain a greeting? Answer only "yes" or "no".
                Message: ${input}
          - eval: "${1.0 if 'yes' in _.lower() else 0.0}"

      generates_greeting:
        do:
          - call: llm
            params:
              prompt: "Generate a simple ${language} greeting in one word."
          - eval: "${1.0 if any(g.lower() in _.lower() for g in greetings) else 0.0}"

  error_handling:
    tests:
      handles_empty_input:
        data:
          input: ""
        do:
          - call: llm
            params:
              prompt: "Respond to: ${input}"
            catch: ["*"]
          - eval: "${0.0 if _ is None else 1.0}"
"""


def answer(question: Question) -> str:
    if "contain a greeting" in question.prompt:
        return "Yes."
    return "Hello!" if "greeting in one word" in question.prompt else ""


def with_model(server: ModelServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}


def test_the_complete_example_of_the_source_runs_unchanged(tmp_path: Path) -> None:
    with model_server(script=answer, output_tokens=734) as server:
        ended = run(tmp_path, env=with_model(server), script=SCRIPT, suite=COMPLETE)
        asked = server.stats().requests

    assert ended.code == 0
    assert yaml.safe_load(ended.out) == {
        "final_score": 1.0,
        "per_suite": {
            "greeting_tests": {
                "final_score": 1.0,
                "per_test": {"recognizes_hello": 1.0, "generates_greeting": 1.0},
            },
            "error_handling": {"final_score": 1.0, "per_test": {"handles_empty_input": 1.0}},
        },
    }
    assert asked == 15
    total, per_model, default = ended.err.splitlines()[-3:]
    assert (total[:22], per_model) == ("Total Session Tokens: ", "Per-Model:")
    assert default.startswith("  default: ")
    assert default.endswith(" in, 11,010 out)")


@pytest.mark.parametrize(
    ("written", "score"), [("config: {reasoning: strip}", 1.0), ("reasoning: keep", 0.0)]
)
def test_a_model_of_a_script_strips_its_reasoning(
    tmp_path: Path, written: str, score: float
) -> None:
    script = SCRIPT.replace("model: gpt-4o-mini", f"model: gpt-4o-mini, {written}")
    suite = """\
        shared: {tools: [{import_tool: llm_workers.tools.llm_tool.build_llm_tool, name: llm}]}
        suites:
          all:
            tests:
              one:
                do:
                  - call: llm
                    params: {prompt: Capital?}
                  - eval: "${1.0 if _ == 'Rome' else 0.0}"
        """
    with model_server(script=lambda _: "<think>Berlin?</think>\nRome") as server:
        env = with_model(server)
        ended = run(tmp_path, "-n", "1", env=env, script=script, suite=suite)
        (asked,) = server.requests

    assert scores(ended) == {"all/one": score}
    assert "reasoning" not in asked.body


def test_a_model_rates_what_another_one_said(tmp_path: Path) -> None:
    suite = """
        shared:
          tools:
            - import_tool: llm_workers.tools.llm_tool.build_llm_tool
              name: llm

        suites:
          quality:
            tests:
              response_quality:
                data:
                  test_prompt: "Explain what a variable is"
                do:
                  - call: llm
                    params:
                      model_ref: default
                      prompt: "${test_prompt}"
                    store_as: response
                  - call: llm
                    params:
                      model_ref: fast
                      prompt: |
                        Return ONLY a single decimal number, nothing else.
                        Response: ${response}
    """

    def rate(question: Question) -> str:
        return " 0.8\n" if "a named value" in question.prompt else "It is a named value."

    with model_server(script=rate) as server:
        ended = run(tmp_path, env=with_model(server), script=SCRIPT, suite=suite)

    assert scores(ended) == {"quality/response_quality": 0.8}
    assert [line.split(":")[0] for line in ended.err.splitlines()[-2:]] == ["  default", "  fast"]


def test_expressions_in_a_models_prompts_are_filled_when_it_is_asked(tmp_path: Path) -> None:
    suite = """
        shared:
          tools:
            - import_tool: llm_workers.tools.llm_tool.build_llm_tool
              name: judge
              config:
                system_message: "Answer in ${language}, as a number."
                prompt: "Rate ${subject.name}."
        suites:
          quality:
            data: {language: Danish, subject: {name: the reply}}
            tests:
              asked: {do: {call: judge}}
              told: {do: {call: judge, params: {prompt: "Rate it."}}}
    """
    asked: list[str] = []

    def rate(question: Question) -> str:
        asked.append(question.text)
        return "0.5"

    with model_server(script=rate) as server:
        ended = run(tmp_path, env=with_model(server), script=SCRIPT, suite=suite)

    assert scores(ended) == {"quality/asked": 0.5, "quality/told": 0.5}
    assert "Answer in Danish, as a number.\nRate the reply." in asked


def test_the_flat_format_gives_the_shape_of_its_program(tmp_path: Path) -> None:
    suite = """
        iterations: 2
        tests:
          half: {do: {eval: "${TEST_ITERATION / 2}"}}
          broken: {do: {eval: "${1 / TEST_ITERATION}"}}
    """
    document = yaml.safe_load(run(tmp_path, suite=suite).out)
    half, broken = document["tests"]["half"], document["tests"]["broken"]

    assert list(document) == ["mean_score", "CI_95", "tests"]
    assert document["mean_score"] == 0.375
    # Over the means of the iterations, 0 and 0.75: ± 12.706 · 0.375.
    assert document["CI_95"] == {
        "min": pytest.approx(0.375 - 12.7062 * 0.375, abs=1e-4),
        "max": pytest.approx(0.375 + 12.7062 * 0.375, abs=1e-4),
    }
    assert list(half) == ["mean_score", "CI_95", "scores"]
    assert half["scores"] == {"0": 0.0, "1": 0.5}
    assert list(broken) == ["mean_score", "CI_95", "scores", "errors"]
    assert broken["mean_score"] == 0.5
    assert list(broken["errors"]) == ["0"]


def test_detail_adds_iterations_and_changes_nothing_else(tmp_path: Path) -> None:
    suite = """
        iterations: 3
        suites: {s: {tests: {a: {do: {eval: "${TEST_ITERATION / 2}"}}, b: {do: {eval: "${x}"}}}}}
    """
    plain = yaml.safe_load(run(tmp_path, suite=suite).out)
    detailed = yaml.safe_load(run(tmp_path, "--detail", suite=suite).out)
    details = detailed["per_suite"]["s"].pop("details")

    assert detailed == plain
    assert details["a"]["scores"] == [0.0, 0.5, 1.0]
    assert details["a"]["standard_error"] == pytest.approx(0.28867513)
    assert details["a"]["confidence_95"] == [0.0, 1.0]
    assert list(details["b"]["errors"]) == [0, 1, 2]


def test_a_suite_without_tests_scores_zero_with_a_warning(tmp_path: Path) -> None:
    ended = run(tmp_path, suite="suites: {full: {tests: {a: {do: {eval: 1}}}}, empty: {}}\n")

    assert yaml.safe_load(ended.out) == {
        "final_score": 0.5,
        "per_suite": {
            "full": {"final_score": 1.0, "per_test": {"a": 1.0}},
            "empty": {"final_score": 0.0, "per_test": {}},
        },
    }
    assert "suite 'empty' has no tests" in ended.err


def test_json_gives_the_report_of_every_format(tmp_path: Path) -> None:
    report = run(tmp_path, "--json", suite="suites: {s: {tests: {a: {do: {eval: 0.4}}}}}\n").report

    assert (report["format"], report["decision"], report["score"]) == ("script-suite", "pass", 0.4)
    assert report["cases"][0] | {"items": []} == {
        "id": "s/a",
        "group": "s",
        "variant": "default",
        "score": 0.4,
        "passed": False,
        "items": [],
    }


def test_gates_and_variants_work_as_for_every_format(tmp_path: Path) -> None:
    suite = """
        evalcore:
          variants: [{id: plain}, {id: bold, config: {data: {level: 0.9}}}]
          gates: [{gate: score_at_least, threshold: 0.8}]
        shared: {data: {level: 0.1}}
        suites: {s: {tests: {a: {do: {eval: "${level}"}}}}}
    """
    ended = run(tmp_path, suite=suite)

    assert ended.code == 1
    documents = yaml.safe_load(ended.out)["per_variant"]
    assert {name: found["final_score"] for name, found in documents.items()} == {
        "plain": 0.1,
        "bold": 0.9,
    }
    assert "gate score_at_least: fail" in ended.err


def test_a_script_of_a_package_is_found_without_importing_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pack/__init__.py": "raise RuntimeError('imported')",
            "pack/script.yaml": "shared: {data: {x: 0.75}}",
            "suite.yaml": "suites: {s: {tests: {a: {do: {eval: '${x}'}}}}}",
        },
    )
    ended = evalcore("run", "pack:script.yaml", "suite.yaml", store=tmp_path / "s", cwd=tmp_path)

    assert scores(ended) == {"s/a": 0.75}


SERVER = """
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def greet(name: str) -> str:
        return f"hello {name}"

    @server.tool()
    def fail() -> str:
        raise ValueError("no")

    server.run()
"""


def test_tools_of_a_real_mcp_server_are_called(tmp_path: Path) -> None:
    write(tmp_path, {"server.py": SERVER})
    script = f"""
        mcp:
          calculator: {{transport: stdio, command: {sys.executable}, args: [server.py]}}
    """
    suite = """
        shared:
          tools:
            - {import_tool: "mcp:calculator/add"}
            - {import_tool: "mcp:calculator/fail"}
            - {import_tool: "mcp:calculator/greet", name: hello}
            - {import_tool: "mcp:calculator/nothing"}
        suites:
          s:
            tests:
              structured: {do: [{call: add, params: {a: 1, b: 2}}, {eval: "${_ / 10}"}]}
              named: {do: [{call: hello, params: {name: you}}, {eval: "${_ == 'hello you'}"}]}
              failing: {do: {call: fail}}
              caught: {do: [{call: fail, catch: ToolException}, {eval: "${_ is None}"}]}
              unknown: {do: {call: nothing}}
    """
    ended = run(tmp_path, script=script, suite=suite)

    assert scores(ended) == {
        "s/structured": 0.3,
        "s/named": 1.0,
        "s/failing": 0.0,
        "s/caught": 1.0,
        "s/unknown": 0.0,
    }
    assert "Error: s/unknown: calculator/nothing: " in ended.err


WEB_SERVER = """
    import asyncio
    import sys

    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def who(ctx: Context) -> str:
        return ctx.request_context.request.headers.get("x-team", "nobody")

    @server.tool()
    async def late() -> int:
        await asyncio.sleep(60)
        return 1

    server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""


def test_tools_of_an_mcp_server_on_the_web_are_called(tmp_path: Path) -> None:
    write(tmp_path, {"server.py": WEB_SERVER})
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    script = f"""
        mcp:
          web: {{transport: streamable_http, url: "{url}",
                headers: {{X-Team: "${{env.EVAL_TEAM}}"}}}}
          slow: {{transport: streamable_http, url: "{url}", timeout_seconds: 0.2}}
          gone: {{transport: streamable_http, url: "http://127.0.0.1:1/mcp"}}
    """
    suite = """
        shared:
          tools: [{import_tool: "mcp:web/add"}, {import_tool: "mcp:web/who"},
                  {import_tool: "mcp:slow/late"}, {import_tool: "mcp:gone/add", name: gone}]
        suites:
          s:
            tests:
              added: {do: [{call: add, params: {a: 1, b: 2}}, {eval: "${_ / 10}"}]}
              told: {do: [{call: who}, {eval: "${_ == 'blue'}"}]}
              unreachable: {do: {call: gone}}
              late: {do: {call: late}}
              caught: {do: [{call: gone, catch: ConnectionError}, {eval: "${_ is None}"}]}
    """
    command = [sys.executable, str(tmp_path / "server.py"), str(port)]
    with running(command, dict(os.environ), tmp_path / "server.log") as server:
        wait_until_open(server, port, tmp_path / "server.log")
        ended = run(tmp_path, env={"EVAL_TEAM": "blue"}, script=script, suite=suite)

    expected = {"s/added": 0.3, "s/told": 1.0, "s/unreachable": 0.0, "s/caught": 1.0}
    assert scores(ended) == {**expected, "s/late": 0.0}, ended.err
    assert "Error: s/unreachable: MCP server 'gone': " in ended.err
    assert "Error: s/late: slow/late: no answer within 0.2 s (timeout_seconds)" in ended.err


TOOLS = """
    def add(a, b=1):
        return a + b

    async def later(x):
        return x * 2

    class Counter:
        def __init__(self, start=0):
            self.count = start

        def __call__(self, by=1):
            return self.count + by

    def make(prefix):
        return lambda text: prefix + text

    def build(context, tool_config, name=None):
        return lambda x: [name, tool_config, x]

    def lose():
        raise KeyError("lost")
"""


def test_python_of_every_form_is_a_tool(tmp_path: Path) -> None:
    write(tmp_path, {"mine.py": TOOLS})
    suite = """
        shared:
          tools:
            - {import_tool: mine.add}
            - {import_tool: mine.later}
            - {import_tool: mine.Counter, name: counter, config: {start: 5}}
            - {import_tool: mine.make, name: prefixed, config: {prefix: "0."}}
            - {import_tool: mine.build, name: built, config: {k: 1}}
            - {import_tool: mine.lose}
        suites:
          s:
            tests:
              function: {do: {call: add, params: {a: 0.1, b: 0.2, c: 3}}}
              coroutine: {do: {call: later, params: {x: 0.25}}}
              callable: {do: [{call: counter, params: {by: 1}}, {eval: "${_ / 10}"}]}
              factory: {do: {call: prefixed, params: {text: "5"}}}
              config: {do: [{call: built, params: {x: 2}},
                            {eval: "${_ == ['built', {'k': 1}, 2]}"}]}
              raised: {do: {call: lose}}
              caught: {do: [{call: lose, catch: KeyError}, {eval: "${_ is None}"}]}
              caught_by_base: {do: [{call: lose, catch: [LookupError]}, {eval: 1}]}
              not_caught: {do: [{call: lose, catch: ValueError}, {eval: 1}]}
              in_starlark: {do: {starlark: "result = add(a=1, b=2) / 10"}}
    """
    ended = run(tmp_path, suite=suite)

    assert scores(ended) == {
        "s/function": pytest.approx(0.3),
        "s/coroutine": 0.5,
        "s/callable": 0.6,
        "s/factory": 0.5,
        "s/config": 1.0,
        "s/raised": 0.0,
        "s/caught": 1.0,
        "s/caught_by_base": 1.0,
        "s/not_caught": 0.0,
        "s/in_starlark": 0.3,
    }
    assert "Warning: s/function: tool 'add' has no parameter 'c'; it is ignored" in ended.err
    assert "Error: s/raised: KeyError: 'lost'" in ended.err


def test_variables_are_read_and_secret_ones_never_shown(tmp_path: Path) -> None:
    write(tmp_path, {".env": "GREETING=hello there\nDOOR=open sesame\nNO_NAME_KEY=abcdefg\n"})
    script = "env: {GREETING: {description: d}, DOOR: {description: d, secret: true}}\n"
    suite = """
        suites:
          s:
            tests:
              by_name: {do: {eval: "${GREETING == 'hello there' and env.GREETING == GREETING}"}}
              shown: {do: {eval: "the door: ${DOOR}, ${env.NO_NAME_KEY}"}}
              raised: {do: {eval: "${int(DOOR)}"}}
    """
    ended = run(tmp_path, "--json", script=script, suite=suite)

    assert ended.report["cases"][0]["score"] == 1.0
    for secret in ("sesame", "abcdefg"):
        assert secret not in ended.out + ended.err
    assert "the door: [redacted], [redacted]" in ended.err


def test_python_that_trust_does_not_grant_stops_the_run(tmp_path: Path) -> None:
    suite = """
        shared: {tools: [{import_tool: os.getcwd}]}
        suites: {s: {tests: {a: {do: {call: getcwd}}}}}
    """
    ended = run(tmp_path, suite=suite)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("suite.yaml:2: shared.tools[0].import_tool: os:getcwd: module 'os'")


def test_a_model_calls_the_tools_that_it_has(tmp_path: Path) -> None:
    def ask(question: Question) -> str | Answer:
        results = [one for one in question.body["messages"] if one["role"] == "tool"]
        if results:
            return f"it is {results[-1]['content']}"
        call = {"name": "double", "arguments": {"x": 4}}
        return Answer("", tool_calls=(call,))

    suite = """
        shared:
          tools:
            - name: double
              description: doubles
              input: [{name: x, description: a number, type: int}]
              do: {eval: "${x * 2}"}
            - import_tool: llm_workers.tools.llm_tool.build_llm_tool
              config: {tools: [double]}
        suites:
          s:
            tests: {a: {do: [{call: llm, params: {prompt: go}}, {eval: "${_ == 'it is 8'}"}]}}
    """
    with model_server(script=ask) as server:
        ended = run(tmp_path, env=with_model(server), suite=suite)

    assert (scores(ended), ended.err.count("Error")) == ({"s/a": 1.0}, 0)


def test_a_page_is_fetched_and_its_text_taken(tmp_path: Path) -> None:
    with model_server() as server:
        suite = f"""
            shared:
              data: {{url: "{server.url}/stats"}}
              tools: [{{import_tool: llm_workers.tools.fetch.fetch_page_text}}]
            suites:
              s:
                tests:
                  text: {{do: [{{call: fetch_page_text, params: {{url: "${{url}}"}}}},
                               {{eval: "${{'requests' in _}}"}}]}}
                  nothing: {{do: [{{call: fetch_page_text, params: {{url: "${{url}}/nothing"}}}},
                                  {{eval: "${{_ == ''}}"}}]}}
        """
        ended = run(tmp_path, suite=suite)

    assert scores(ended) == {"s/text": 1.0, "s/nothing": 1.0}
