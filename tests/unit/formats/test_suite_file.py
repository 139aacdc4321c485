"""Suite files: cases × variants (docs/reference/suites.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.model.suite import Case, Format, Suite
from tests.unit.formats.loading import load_text, places_of, problems_of, write

HEAD = """
    name: my-api-eval
    flow: flows:my_workflow
    variants: [{id: a}, {id: b}]
"""
CASES = """
    cases: [{id: c1, input: x, assertions: [{type: behavior.no_errors}]}]
"""


def load(folder: Path, text: str, **options: Any) -> Suite:
    return load_text(folder, text, **options)


def case_of(folder: Path, case: str, more: str = "") -> Case:
    suite = load(folder, f"{HEAD}{more}\n    cases: [{case}]\n")
    return next(iter(suite.cases))


def messages(folder: Path, text: str, **options: Any) -> list[str]:
    return [
        f"{problem.path}: {problem.message}" for problem in problems_of(folder, text, **options)
    ]


def test_the_page_s_example_loads(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
        name: my-api-eval
        flow: my_package.flows:my_workflow
        cases:
          - id: hello-api
            input: {task: "…"}
            tags: [smoke]
            fixtures: {}
            assertions: [{type: output.contains, path: outputs.main.code, value: app.get}]
        variants:
          - id: claude/sonnet
            provider: anthropic
            model: claude-3-5-sonnet-latest
            config: {system_prompt: "…"}
            tags: [paid]
        baseline: claude/sonnet
        scorers: [latency, {callable: "module:function"}]
        gates: [no_regressions, {gate: pass_rate, threshold: 0.9}]
        """,
    )
    definition = suite.definition
    assert (definition.name, definition.format) == ("my-api-eval", Format.SUITE)
    assert definition.baseline == "claude/sonnet"
    assert [scorer.name for scorer in definition.scorers] == ["latency", "function"]
    assert [gate.gate for gate in definition.policy.gates] == [
        "no_regressions",
        "pass_rate",
        "errors",
    ]
    (variant,) = definition.variants
    assert variant.config == {
        "provider": "anthropic",
        "model": "claude-3-5-sonnet-latest",
        "config": {"system_prompt": "…"},
    }
    (case,) = suite.cases
    assert case.fixture is None
    assert case.tags == ("smoke",)
    assert case.assertions[0].params == {"path": "outputs.main.code", "value": "app.get"}


@pytest.mark.parametrize(
    ("baseline", "gate"),
    [("    baseline: a", "no_regressions"), ("", "pass_rate")],
    ids=["with a baseline", "without"],
)
def test_the_default_gate_depends_on_the_baseline(tmp_path: Path, baseline: str, gate: str) -> None:
    policy = load(tmp_path, f"{HEAD}{baseline}\n{CASES}").definition.policy
    assert [one.gate for one in policy.gates] == [gate, "errors"]


def test_every_mistake_of_the_suite_is_reported_together(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """\
        flow: flows:f
        variants: [{id: a}, {id: a, modle: x}, {id: b}, {id: b}]
        baseline: c
        gates: [{gate: pass_rate, threshold: 1.5}, {gate: required_cases, case_ids: [nope]}]
        scorers: [latence]
        cases:
          - {id: c1, input: x, assertions: [{type: output.contain, value: x}]}
          - {id: c1, input: y}
          - {input: z}
        """,
    )
    assert places_of(problems) == [
        (1, "name"),
        (2, "variants[1].modle"),
        (3, "baseline"),
        (4, "gates[0]"),
        (4, "gates[1]"),
        (5, "scorers[0]"),
        (7, "cases[0].assertions[0].type"),
        (8, "cases[1].id"),
        (9, "cases[2].id"),
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (f"flow: a:b\nvariants: [{{id: a}}]{CASES}", "name: is required"),
        (f"name: n\nvariants: [{{id: a}}]{CASES}", "flow: is required"),
        (f"name: n\nflow: a:b\nvariants: []{CASES}", "variants: must not be empty"),
        ("name: n\nflow: a:b\nvariants: [{id: a}]\ncases: []", "cases: holds no case"),
        (
            f"name: n\nflow: a:b\nvariants: [{{id: a}}]\nbaseline: b{CASES}",
            "baseline: no variant is called 'b'. Known: a.",
        ),
        (
            f"name: n\nflow: a:b\nvariants: [{{id: a}}, {{id: a}}]{CASES}",
            "variants[1].id: duplicate variant id: a (first at line 3)",
        ),
        (
            f"name: n\nflow: a:b\nvariants: [{{id: a}}]\nflwo: x{CASES}",
            "flwo: unknown key 'flwo'. Did you mean 'flow'?",
        ),
        (
            f"name: n\nflow: a:b\nvariants: [{{id: a}}]\niterations: 0{CASES}",
            "iterations: must be at least 1, got the number 0",
        ),
        (
            f"name: n\nflow: a:b\nvariants: [{{id: a}}]\ntags: [x]\nevalcore: {{tags: [y]}}{CASES}",
            "evalcore.tags: is given here and as 'tags'; remove one of them",
        ),
    ],
)
def test_a_mistake_of_the_suite_is_reported_where_it_stands(
    tmp_path: Path, text: str, mistake: str
) -> None:
    text = "\n".join(line.removeprefix("    ") for line in text.splitlines())
    assert messages(tmp_path, text, format="suite") == [mistake]


@pytest.mark.parametrize(
    ("assertion", "mistake"),
    [
        ("{type: output.contain, value: x}", "Did you mean 'output.contains'?"),
        ("{type: output.contains}", "value: is required"),
        ("{type: output.contains, value: x, pth: y}", "Did you mean 'path'?"),
        ("{type: output.contains, value: x, path: a..b}", "is no path"),
        ("{type: metric.latency_ms.max, value: fast}", "expected a number"),
        ("{type: behavior.node_executed}", "node_id: is required"),
        ("{type: behavior.node_invocations.max, nodeId: a, value: 1.5}", "whole number"),
        ("{type: output.matches}", "the regular expression"),
        ("{type: word-count, value: {min: 5, max: 3}}", "'min' (5) is above 'max' (3)"),
        ("{type: python, callable: nothing}", "module:function"),
        ("{type: llm_judge, minScore: 2}", "a number from 0 to 1"),
        ("{value: x}", "type: is required"),
        ("text", "an assertion is a mapping"),
    ],
)
def test_a_mistake_in_an_assertion_is_reported_where_it_stands(
    tmp_path: Path, assertion: str, mistake: str
) -> None:
    text = f"{HEAD}\n    cases: [{{id: c, input: x, assertions: [{assertion}]}}]\n"
    (found,) = messages(tmp_path, text)
    assert found.startswith("cases[0].assertions[0]")
    assert mistake in found


@pytest.mark.parametrize(
    ("assertion", "check"),
    [
        ("{type: output.contains, value: x}", "output-contains"),
        ("{type: output.matches, pattern: x}", "output-matches"),
        ("{type: metric.latency_ms.max, value: 1}", "latency"),
        ("{type: metric.total_cost_usd.max, value: 0.1}", "cost"),
        ("{type: metric.tokens.input.max, value: 1}", "input-tokens"),
        ("{type: behavior.no_errors}", "no-errors"),
        ("{type: behavior.node_executed, nodeId: a}", "node-executed"),
        ("{type: behavior.node_invocations.max, nodeId: a, value: 2}", "node-invocations"),
        ("{type: starts_with, value: x}", "starts-with"),
        ("{type: not-icontains, value: x}", "contains"),
        ("{type: is-json, path: outputs.a}", "at-path"),
        ("{type: python, callable: 'a:b', path: outputs.a}", "at-path-later"),
        ("{type: token-usage, threshold: 5}", "tokens"),
    ],
)
def test_every_type_of_the_pages_is_read(tmp_path: Path, assertion: str, check: str) -> None:
    case = case_of(tmp_path, f"{{id: c, input: x, assertions: [{assertion}]}}")
    assert case.assertions[0].check == check


@pytest.mark.parametrize(
    ("fixtures", "output", "outputs"),
    [
        ("{main: text}", "text", {"main": "text"}),
        ("{plan: p, main: {code: c}}", '{"code": "c"}', {"plan": "p", "main": '{"code": "c"}'}),
        ("{main: {output: o, metrics: {latency_ms: 5}}}", "o", {"main": "o"}),
        ("{output: o}", "o", {}),
        ("{output: o, metrics: {cost_usd: 1}}", "o", {}),
        ("{outputs: {a: x, b: y}, output: o}", "o", {"a": "x", "b": "y"}),
    ],
)
def test_fixtures_are_the_evidence(
    tmp_path: Path, fixtures: str, output: str, outputs: dict[str, str]
) -> None:
    fixture = case_of(tmp_path, f"{{id: c, input: x, fixtures: {fixtures}}}").fixture
    assert fixture is not None
    assert (fixture.output, dict(fixture.outputs)) == (output, outputs)


def test_the_primary_output_is_the_suite_s(tmp_path: Path) -> None:
    fixture = case_of(
        tmp_path, "{id: c, fixtures: {a: x, b: y}}", more="    primaryOutput: a"
    ).fixture
    assert fixture is not None
    assert fixture.output == "x"


def test_camel_case_is_read_and_its_mistakes_have_their_line(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """\
        name: n
        flow: a:b
        variants: [{id: a}]
        cases:
          - id: c
            input: x
            assertions:
              - type: behavior.node_executed
                nodeId: 3
        """,
    )
    assert places_of(problems) == [(9, "cases[0].assertions[0].node_id")]


def test_cases_may_stand_in_other_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "more.yaml": "cases: [{id: y, input: 1}]\n",
            "lines.jsonl": '{"id": "j", "input": {"a": 1}, "output": "given"}\n',
            "table.csv": "id,input,output,contains,colour\nt,q,answer,ans,red\n",
        },
    )
    suite = load(tmp_path, f"{HEAD}\n    cases: [more.yaml, lines.jsonl, table.csv]\n")
    cases = {case.id: case for case in suite.cases}
    assert list(cases) == ["y", "j", "t"]
    assert cases["j"].fixture is not None
    assert cases["t"].metadata == {"colour": "red"}
    assert [one.type for one in cases["t"].assertions] == ["contains"]


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        pytest.param(
            '{"id": "ok", "assertions": []}\n{"id": "b", "assertions": [{"type": "contian"}]}\n',
            "lines.jsonl:2: assertions[0].type: unknown assertion 'contian'",
            id="a mistake",
        ),
        pytest.param("{", "lines.jsonl:1: not valid JSON", id="no JSON"),
        pytest.param("", "lines.jsonl: holds no case", id="empty"),
    ],
)
def test_a_mistake_in_a_file_of_cases_is_reported(
    tmp_path: Path, content: str, mistake: str
) -> None:
    write(tmp_path, {"lines.jsonl": content})
    (problem,) = problems_of(tmp_path, f"{HEAD}\n    cases: lines.jsonl\n")
    assert mistake in str(problem)


def test_mistakes_of_the_suite_and_of_its_files_are_reported_together(tmp_path: Path) -> None:
    write(tmp_path, {"lines.jsonl": '{"id": true}\n'})
    text = f"{HEAD}\n    gates: [{{gate: pass_rat}}]\n    cases: lines.jsonl\n"
    files = [Path(problem.file).name for problem in problems_of(tmp_path, text)]
    assert files == ["suite.eval.yaml", "lines.jsonl"]


def test_a_flow_may_be_a_target(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
        name: n
        flow: helper
        targets: [{name: helper, provider: mock, response: hi}, {name: other, provider: echo}]
        variants: [{id: a, config: {response: ho}}, {id: b, provider: other}]
        cases: [{id: c, input: x}]
        """,
    ).definition
    assert suite.default_target == "helper"
    assert [(one.target, dict(one.config)) for one in suite.variants] == [
        (None, {"response": "ho"}),
        ("other", {}),
    ]
    assert set(suite.targets) == {"helper", "other"}


def test_a_flow_may_be_a_workflow_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "wf.yaml": """
            blocks: {a: {type: llm, soul_ref: s, prompt_template: hi}}
            souls: {s: {model_name: m}}
            eval: {cases: []}
            """
        },
    )
    definition = load(
        tmp_path,
        """
        name: n
        flow: wf.yaml
        primary_output: a
        variants: [{id: v, model: m2, config: {systemPrompt: Be kind.}}]
        cases: [{id: c, input: {q: 1}}]
        """,
    ).definition
    target = definition.targets["workflow"]
    assert target.kind == "workflow"
    assert "eval" not in target.options["definition"]
    assert target.options["primary_output"] == "a"
    assert definition.variants[0].config == {"model": "m2", "system_prompt": "Be kind."}


@pytest.mark.parametrize(
    ("flow", "mistake"),
    [
        ("nobody", "no target is called 'nobody'"),
        ("gone.yaml", "there is no file 'gone.yaml'"),
        ("{blocks: {}}", "a workflow needs 'blocks'"),
        ("{provider: moc}", "Did you mean 'mock'?"),
        ("{provider: mock}", "flow.response: target 'flow': is required"),
        ("{primary_output: a}", "a flow is module:function"),
        ("{flow: a:b, primary: x, other: y}", "unknown key 'primary'"),
    ],
)
def test_a_mistake_in_the_flow_is_reported_where_it_stands(
    tmp_path: Path, flow: str, mistake: str
) -> None:
    text = f"name: n\nflow: {flow}\nvariants: [{{id: a}}]\ncases: [{{id: c, input: x}}]\n"
    assert any(mistake in found for found in messages(tmp_path, text))


def test_a_case_that_asserts_nothing_is_a_warning_and_in_strict_mode_a_mistake(
    tmp_path: Path,
) -> None:
    text = f"{HEAD}\n    cases: [{{id: c, input: x}}]\n"
    assert "asserts nothing" in load(tmp_path, text).warnings[0]
    assert "asserts nothing" in messages(tmp_path, text, strict=True)[0]


MODULE = "import json\ndef answer(case_input): ...\nclass Bot: ...\n"


@pytest.mark.parametrize(
    ("flow", "mistake"),
    [
        ("mine:answr", "flow: mine:answr: 'mine' has no 'answr'. Did you mean 'answer'?"),
        ("{flow: 'mine:zz'}", "flow.flow: mine:zz: 'mine' has no 'zz'. Known: Bot, answer"),
        ("{callable: 'mine:zz'}", "flow.callable: mine:zz: 'mine' has no 'zz'."),
        ("{target: p}", "flow.target: mine:missing: 'mine' has no 'missing'."),
        ("nobody:fn", "flow: nobody:fn: there is no module 'nobody' below"),
        ("broken:fn", "flow: broken:fn: importing 'broken' would fail: SyntaxError"),
    ],
)
def test_a_function_that_is_not_there_is_a_mistake(tmp_path: Path, flow: str, mistake: str) -> None:
    write(tmp_path, {"mine.py": MODULE, "broken.py": "def"})
    text = f"""
    name: n
    flow: {flow}
    targets: [{{name: p, provider: python, callable: "mine:missing"}}]
    variants: [{{id: a}}]
    {CASES}
    """
    (found,) = messages(tmp_path, text, allow_imports=())
    assert mistake in found
    assert load(tmp_path, text).definition.name == "n"


@pytest.mark.parametrize(
    ("flow", "fixtures"),
    [
        ("mine:answer", "{}"),
        ("mine:Bot.ask", "{}"),
        ("dynamic:anything", "{}"),
        ("json:loads", "{}"),
        ("mine:missing", "{output: given}"),
    ],
)
def test_a_function_that_may_be_there_or_is_not_called_is_no_mistake(
    tmp_path: Path, flow: str, fixtures: str
) -> None:
    dynamic = "def __getattr__(name): return print\n"
    write(
        tmp_path,
        {"mine.py": MODULE, "dynamic.py": dynamic, "starred.py": "from json import *\n"},
    )
    case = f"{{id: c, input: x, fixtures: {fixtures}, assertions: [{{type: behavior.no_errors}}]}}"
    text = f"name: n\nflow: {flow}\nvariants: [{{id: a}}]\ncases: [{case}]\n"
    assert load(tmp_path, text, allow_imports=("somewhere",)).definition.name == "n"


@pytest.mark.parametrize(
    ("fixtures", "is_given"),
    [("{draft: x, check: y}", True), ("{check: y}", False), ("{draft: x}", True)],
)
def test_fixtures_that_leave_out_a_checked_block_of_a_workflow_execute_the_rest(
    tmp_path: Path, fixtures: str, is_given: bool
) -> None:
    suite = load(
        tmp_path,
        f"""
        name: n
        flow: {{blocks: {{draft: {{type: code, code: a}}, check: {{type: code, code: b}}}}}}
        variants: [{{id: v}}]
        cases:
          - id: c
            fixtures: {fixtures}
            assertions: [{{type: output.contains, path: outputs.draft, value: x}}]
        """,
    )
    (case,) = suite.cases
    assert (case.fixture is not None) is is_given
    assert (case.block_fixtures is not None) is not is_given


def test_the_suites_assertions_are_every_cases_after_its_own(tmp_path: Path) -> None:
    text = f"""{HEAD}
    assertions: [{{type: behavior.no_errors}}]
    cases:
      - {{id: c1, assertions: [{{type: contains, value: x}}]}}
      - {{id: c2}}
    """
    suite = load(tmp_path, text)
    assert [[each.type for each in case.assertions] for case in suite.cases] == [
        ["contains", "behavior.no_errors"],
        ["behavior.no_errors"],
    ]
    assert suite.warnings == ()


def test_mistakes_in_members_of_a_composite_are_noted_at_their_place(tmp_path: Path) -> None:
    members = "{type: levenshtain, value: a}, {type: word-count}, {type: contains}"
    composite = f"{{type: composite, assertions: [{members}]}}"
    text = f"{HEAD}\n    cases: [{{id: a, input: x, assertions: [{composite}]}}]\n"
    at = "cases[0].assertions[0].assertions"
    assert messages(tmp_path, text) == [
        f"{at}[0].type: unknown assertion 'levenshtain'. Did you mean 'levenshtein'?",
        f"{at}[1].value: is required",
        f"{at}[2].value: is required",
    ]


def test_a_file_is_read_wherever_a_text_may_stand(tmp_path: Path) -> None:
    write(tmp_path, {"q.txt": "Who?", "a.txt": "Ada"})
    case = "{id: a, input: 'file://q.txt', expected_output: 'file://a.txt', assertions: ["
    case += "{type: equals, value: 'file://a.txt'}, "
    case += "{type: output.equals, path: output, value: {b: ['file://a.txt']}}], "
    case += "fixtures: {a: {text: 'file://a.txt'}}}"
    (found,) = load(tmp_path, f"{HEAD}\n    cases: [{case}]\n").cases

    assert (found.input, found.expected_output) == ("Who?", "Ada")
    assert [each.params["value"] for each in found.assertions] == ["Ada", {"b": ["Ada"]}]
    assert found.fixture is not None
    assert found.fixture.outputs["a"] == '{"text": "Ada"}'
