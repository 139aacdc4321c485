"""Suites in YAML and in Python from the outside (docs/reference/suites.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from evalcore import run_eval
from tests.support.model_server import model_server
from tests.support.shell import ROOT, Json, comparable, environment, evalcore

EXAMPLE = ROOT / "examples" / "route-generator"

FLOWS = """
async def ask(context):
    reply = await context.chat(messages=f"Write {context.input['what']}", temperature=0)
    return {"outputs": {"prompt": "p", "main": {"text": reply.text}}}

def definition(case_input, variant):
    prompt = "Write {what} as " + variant.id
    return {
        "flow": {
            "blocks": {
                "draft": {"type": "llm", "soul_ref": "writer", "prompt_template": prompt},
                "count": {"type": "code", "code": "def main(data): return 3"},
            },
            "souls": {"writer": {"model_name": variant.model, "provider": "openai"}},
            "workflow": {"entry": "draft", "transitions": [{"from": "draft", "to": "count"}]},
        },
        "primary_output": "draft",
    }
"""

SUITE = """
name: writers
flow: flows:{flow}
cases:
  - id: poem
    input: {{what: a poem}}
    assertions:
      - {{type: output.contains, path: outputs.{path}, value: a poem}}
      - {{type: behavior.no_errors}}
      - {{type: metric.tokens.output.max, value: 1000}}
variants: [{{id: small, model: gpt-4o-mini}}, {{id: large, model: gpt-4o}}]
baseline: small
gates: [pass_rate: 1]
"""


def write(folder: Path, flow: str, path: str) -> None:
    (folder / "flows.py").write_text(FLOWS)
    text = SUITE.format(flow=flow, path=path).replace("[pass_rate: 1]", _GATES)
    (folder / "s.yaml").write_text(text)


_GATES = "[{gate: pass_rate, threshold: 1}]"


@pytest.mark.parametrize(
    ("flow", "path"),
    [("ask", "main.text"), ("definition", "draft")],
    ids=["a function that calls a model", "a workflow definition"],
)
def test_a_recorded_suite_is_replayed_without_a_call(tmp_path: Path, flow: str, path: str) -> None:
    write(tmp_path, flow, path)
    store = tmp_path / "store"
    with model_server() as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "secret"}
        recorded = evalcore(
            "run", "--json", "--mode", "record", "s.yaml", store=store, cwd=tmp_path, env=env
        )
        asked = server.stats().requests
    replayed = evalcore(
        "run", "--json", "--mode", "replay", "s.yaml", store=store, cwd=tmp_path,
        env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
    )  # fmt: skip
    assert (recorded.code, replayed.code, asked) == (0, 0, 2), recorded.err + replayed.err
    assert comparable(recorded.report) == comparable(replayed.report)
    metrics = [case["items"][0]["metrics"] for case in recorded.report["cases"]]
    assert metrics == [case["items"][0]["metrics"] for case in replayed.report["cases"]]


def test_the_same_suite_in_python_and_in_yaml_gives_the_same_results(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, EXAMPLE / "suite.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path / "python"),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (run,) = json.loads(evalcore("runs", "list", "--json", store=tmp_path / "python").out)
    python = evalcore("report", "--json", run["id"], store=tmp_path / "python").report
    yaml, file = (
        evalcore("run", "--json", EXAMPLE / name, store=tmp_path / "files").report
        for name in ("suite.eval.yaml", "suite.py")
    )
    assert comparable(python) == comparable(yaml) == comparable(file)


def test_mistakes_have_their_line_and_a_suggestion(tmp_path: Path) -> None:
    text = """\
    name: n
    flow: flows:f
    cases:
      - {id: a, input: x, assertions: [{type: output.contain, value: x}]}
    variants: [{id: v}]
    baseline: w
    """
    (tmp_path / "s.yaml").write_text(dedent(text))
    ended = evalcore("run", "s.yaml", cwd=tmp_path)
    assert ended.code == 2
    assert (
        "s.yaml:4: cases[0].assertions[0].type: unknown assertion 'output.contain'. " in ended.err
    )
    assert "Did you mean 'output.contains'?" in ended.err
    assert "s.yaml:6: baseline: no variant is called 'w'. Known: v." in ended.err


@pytest.mark.parametrize(
    ("name", "isolation"), [("Tone", "process"), ("tone", "inline")], ids=["class", "object"]
)
def test_a_scorers_raw_value_and_name_reach_the_report_through_reuse(
    tmp_path: Path, name: str, isolation: str
) -> None:
    (tmp_path / "flows.py").write_text(
        "def f(case_input): return case_input\n"
        "class Tone:\n"
        "    name = 'tone'\n"
        "    def score(self, artifact): return {'value': 1, 'rawValue': {'mood': ['calm', 3]}}\n"
        "tone = Tone()\n"
    )
    text = f"""\
    {{name: n, flow: "flows:f", variants: [{{id: v}}], scorers: [{{callable: "flows:{name}"}}],
     cases: [{{id: a, input: x, assertions: [{{type: contains, value: x}}]}}]}}
    """
    (tmp_path / "s.yaml").write_text(text)
    run = ("run", "--json", "s.yaml", "--isolation", isolation)
    for flags in ((), ("--reuse",)):
        ended = evalcore(*run, *flags, store=tmp_path / "st", cwd=tmp_path)
        assert ended.report["cases"][0]["items"][0]["scores"] == [
            {"name": "tone", "value": 1.0, "raw_value": {"mood": ["calm", 3]}, "error": None}
        ]


MEASURED = [{"gate": "latency_under", "max": 60_000}, {"gate": "error_rate_under", "threshold": 1}]
OF_OUTCOMES = [
    "required_assertions",
    {"gate": "pass_rate", "threshold": 0},
    {"gate": "score_at_least", "threshold": 0},
    {"gate": "required_cases", "case_ids": ["a"]},
    {"gate": "reliable", "k": 1, "threshold": 0},
]
SILENT = {"id": "a", "input": "hi"}
CHECKED = {"id": "b", "input": "ho", "assertions": [{"type": "contains", "value": "h"}]}
SCORERS = {"scorers": ["latency"]}


@pytest.mark.parametrize(
    ("cases", "more", "outcome", "code"),
    [
        pytest.param([SILENT], {}, "inconclusive", 3, id="no assertion"),
        pytest.param([SILENT, CHECKED], {}, "pass", 0, id="an assertion of one case"),
        pytest.param([SILENT], SCORERS, "pass", 0, id="a scorer"),
        pytest.param(
            [SILENT], {"assertions": CHECKED["assertions"]}, "pass", 0, id="one of the suite"
        ),
    ],
)
def test_gates_on_passes_or_scores_do_not_pass_where_no_case_has_an_assertion(
    tmp_path: Path, cases: list[Json], more: Json, outcome: str, code: int
) -> None:
    suite = {"name": "s", "flow": {"provider": "echo"}, "variants": [{"id": "v"}], "cases": cases}
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps({**suite, **more, "gates": [*OF_OUTCOMES, *MEASURED]}))
    ended = evalcore("run", path, "--json", store=tmp_path / "store")
    gates = {gate["name"]: gate for gate in ended.report["gates"]}

    assert ended.code == code
    assert {gates.pop(name)["outcome"] for name in ("latency_under", "error_rate_under")} == {
        "pass"
    }
    assert gates.pop("errors")["outcome"] == "pass"
    assert {gate["outcome"] for gate in gates.values()} == {outcome}
    said = {gate["message"].startswith("no case has an assertion") for gate in gates.values()}
    assert said == {outcome == "inconclusive"}


def test_run_eval_runs_a_workflow_file_of_the_examples(tmp_path: Path) -> None:
    result = run_eval(ROOT / "examples" / "extraction" / "suite.eval.yaml", store=tmp_path)
    assert result.passed
    assert result.case_results[0].block_results


def test_what_a_python_file_prints_goes_beside_the_reports_of_its_suites(tmp_path: Path) -> None:
    text = """\
    from evalcore import define_suite
    print("imported")

    def answer(case_input):
        return case_input

    check = [lambda text: text in "xy"]
    cases = [{"id": "a", "input": "x", "assertions": check}]
    suites = [define_suite(name, answer, cases, ["v"]) for name in ("x", "y")]
    """
    (tmp_path / "evals.py").write_text(dedent(text))
    validated = evalcore("validate", "--json", "evals.py", cwd=tmp_path)
    assert [entry["suite"] for entry in validated.lines] == ["x", "y"]
    ended = evalcore("run", "--json", "evals.py", store=tmp_path / "store", cwd=tmp_path)
    assert "imported" in ended.err
    assert [report["suite"] for report in ended.lines] == ["x", "y"]
    refused = evalcore("run", "--workers", "1", "evals.py", store=tmp_path / "store", cwd=tmp_path)
    assert refused.code == 2
    assert "evals.py:9: suite 'x': other processes cannot import lambda" in refused.err


def test_no_script_belongs_to_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("models: []\n")
    (tmp_path / "evals.py").touch()
    refused = evalcore("run", "script.yaml", "evals.py", cwd=tmp_path)
    assert refused.code == 2
    assert "evals.py: is a suite in Python, and no script belongs to one" in refused.err


@pytest.mark.parametrize("flow", ["closure('!')", "Callable()"], ids=["closure", "object"])
def test_a_flow_without_a_name_of_the_module_is_run_by_the_command(
    tmp_path: Path, flow: str
) -> None:
    (tmp_path / "evals.py").write_text(
        "from evalcore import define_suite, variant\n"
        "def closure(end):\n    return lambda text: text + end\n"
        "class Callable:\n    def __call__(self, text):\n        return text\n"
        "case = {'id': 'a', 'input': 'x', 'assertions': [{'type': 'contains', 'value': 'x'}]}\n"
        f"suite = define_suite(name='s', flow={flow}, cases=[case], variants=[variant('v')])\n"
    )
    ended = evalcore("run", "evals.py", store=tmp_path / "store", cwd=tmp_path)
    assert ended.code == 0, ended.err
