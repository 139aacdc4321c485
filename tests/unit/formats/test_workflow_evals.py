"""Files of saved evals: their mistakes, all together, each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import LoadError
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.pipeline.finish import evaluate
from evalcore.storage.local import LocalStore

WORKFLOW = """\
workflow:
  version: "1.0"
  blocks:
    total:
      type: code
      inputs: {invoice: {from: workflow.invoice}}
      code: |
        def main(data):
            return {"total": 1}
  workflow: {name: invoices, entry: total, transitions: [{from: total, to: null}]}
"""
EVAL = """\
  - name: NAME
    target: {type: block, block_id: total}
    source: {type: manual, handle_inputs: {input-json-0: {type: json, data: 1}}}
    assertion:
      target: {output_handle_id: output-json-0, path: total}
      condition: {kind: equals, expected: 5}
"""


def mistakes(folder: Path, text: str) -> list[tuple[int | None, str, str]]:
    """Return line, path and message of each mistake of a file."""
    file = folder / "evals.yaml"
    file.write_text(text)
    with pytest.raises(LoadError) as raised:
        load_suite(file, LoadOptions())
    return [(problem.line, problem.path, problem.message) for problem in raised.value.problems]


def saved(name: str, **changes: str) -> str:
    text = EVAL.replace("NAME", name)
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[]", "must not be empty"),
        ("", "expected a list, got null"),
        ("{a: 1}", "expected a list, got a mapping"),
    ],
)
def test_a_file_without_evals_is_told_so(written: str, message: str, tmp_path: Path) -> None:
    text = f"{WORKFLOW}evals: {written}\n"
    assert mistakes(tmp_path, text) == [(text.count("\n"), "evals", message)]


def test_mistakes_of_a_file_and_of_all_its_evals_are_told_together(tmp_path: Path) -> None:
    evals = [
        saved("a", total="totl"),
        saved("b", block_id="block"),
        saved("b", equals="equal"),
        saved("c", manual="run_step"),
        "  - 5\n",
    ]
    text = f"{WORKFLOW}evals:\n{''.join(evals)}other: 1\n"
    told = mistakes(tmp_path, text)
    places = {path: line for line, path, _ in told}
    lines = dict(enumerate(text.splitlines(), start=1))
    assert set(places) >= {
        "other",
        "evals[0].target.block_id",
        "evals[1].target.block_id",
        "evals[1].target.block",
        "evals[2].name",
        "evals[2].assertion.condition.kind",
        "evals[3].source.type",
        "evals[4]",
    }
    assert "other" in lines[places["other"] or 0]
    assert "totl" in lines[places["evals[0].target.block_id"] or 0]
    assert "equal," in lines[places["evals[2].assertion.condition.kind"] or 0]
    assert "run_step" in lines[places["evals[3].source.type"] or 0]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("evals: []\n", "workflow"),
        (WORKFLOW + "evals: 5\n", "evals"),
        ("workflow: 5\nevals: []\n", "workflow"),
        ("workflow: {blocks: 5}\nevals: []\n", "workflow.blocks"),
        ("workflow: absent.yaml\nevals: []\n", "workflow"),
        (
            f"{WORKFLOW}evals:\n" + saved("a", **{"input-json-0": "input-json-9"}),
            "evals[0].source.handle_inputs.input-json-9",
        ),
        (WORKFLOW + "evals: []\nevalcore: {nam: x}\n", "evalcore.nam"),
        (WORKFLOW + "evals: []\nevalcore: 5\n", "evalcore"),
        (WORKFLOW.replace("type: code", "type: cod") + "evals: []\n", "workflow.blocks.total.type"),
    ],
    ids=[
        "no workflow",
        "evals that are none",
        "a workflow that is none",
        "blocks that are none",
        "a workflow that is away",
        "a handle that the block does not have",
        "an unknown option",
        "options that are none",
        "a mistake of the workflow",
    ],
)
def test_a_mistake_of_the_file_has_its_place(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "evals.yaml"
    file.write_text(text)
    with pytest.raises(LoadError) as raised:
        load_suite(file, LoadOptions(format="workflow-evals"))
    assert place in {problem.path for problem in raised.value.problems}


def test_a_prompt_of_the_workflow_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("On {invoice}")
    block = """total:
      type: llm
      prompt_template: file://prompt.txt
"""
    head, _, rest = WORKFLOW.partition("total:\n      type: code\n")
    inputs, _, graph = rest.partition("      code: |\n")
    graph = graph.partition('{"total": 1}\n')[2]
    file = tmp_path / "evals.yaml"
    file.write_text(f"{head}{block}{inputs}{graph}evals:\n{saved('a')}")
    suite = load_suite(file, LoadOptions(environment={"OPENAI_API_KEY": "k"}))

    definition = suite.definition.targets["block"].options["definition"]
    assert definition["blocks"]["total"]["prompt_template"] == "On {invoice}"


def test_a_duplicate_is_told_at_the_key_that_names_the_eval(tmp_path: Path) -> None:
    by_id = saved("a", **{"- name:": "- id:"})
    text = f"{WORKFLOW}evals:\n{by_id}{by_id}{saved('a')}"
    problems = mistakes(tmp_path, text)
    first = 1 + text.splitlines().index("  - id: a")
    told = f"two evals are called 'a' (first at line {first})"
    assert [(path, message) for _, path, message in problems] == [
        ("evals[1].id", told),
        ("evals[2].name", told),
    ]


def test_an_eval_that_lacks_an_input_names_the_handle(tmp_path: Path) -> None:
    text = f"{WORKFLOW}evals:\n" + saved("a", **{"{input-json-0: {type: json, data: 1}}": "{}"})
    (tmp_path / "evals.yaml").write_text(text)
    suite = load_suite(tmp_path / "evals.yaml")
    with evaluate(suite, LocalStore(tmp_path / "store")) as view:
        (record,) = view.records()
    (item,) = record["items"]
    assert item["error"]["message"] == (
        "block 'total': no value for 'input-json-0' (input 'invoice'); the eval has values for none"
    )


def test_a_file_of_saved_evals_is_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "evals.yaml"
    file.write_text(f"{WORKFLOW}evals:\n{saved('a')}{saved('b')}")
    suite = load_suite(file, LoadOptions())
    assert [case.id for case in suite.cases] == ["a", "b"]
    assert suite.definition.name == "invoices"
    assert suite.definition.policy.gates[0].gate == "pass_rate"


JUDGED = "{kind: llm_judged_as, rubric: polite}"
SIMILAR = "{kind: similarity_gte, reference: a, threshold: 0.5, method: embeddings}"


@pytest.mark.parametrize(
    ("condition", "judge", "asked"),
    [
        (JUDGED, "judge", {"judge"}),
        (f"{{kind: all_items_match, condition: {JUDGED}}}", "judge", {"judge"}),
        (SIMILAR, None, {"embeddings"}),
        (f"{{kind: any_item_matches, condition: {SIMILAR}}}", None, {"embeddings"}),
        ("{kind: exists}", None, set()),
    ],
    ids=["judged", "judged inside", "embedded", "embedded inside", "neither"],
)
def test_the_targets_that_conditions_ask_belong_to_the_suite(
    tmp_path: Path, condition: str, judge: str | None, asked: set[str]
) -> None:
    (tmp_path / "targets.yaml").write_text(
        "targets:\n"
        "  - {name: judge, provider: openai, model: m, api_key: k}\n"
        "  - {name: embeddings, provider: openai, model: e, api_key: k}\n"
    )
    file = tmp_path / "evals.yaml"
    changed = EVAL.replace("{kind: equals, expected: 5}", condition)
    file.write_text(f"{WORKFLOW}evals:\n{changed}")
    definition = load_suite(file, LoadOptions()).definition
    assert definition.judge == judge
    assert definition.targets.keys() - {"block"} == asked
