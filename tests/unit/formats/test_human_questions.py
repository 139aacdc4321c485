"""What people are asked in script suites and in files of saved evals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalcore.checks.base import Subject
from evalcore.checks.human import Human
from evalcore.model.annotation import JUDGED_VALUES
from evalcore.model.assertion import Outcome, Verdict
from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.suite import Case
from evalcore.scripts.program import judged_values
from tests.unit.checks.checking import context
from tests.unit.formats.loading import cases_of, load_text, problems_of

POLITE = "{question: Polite?, labels: [yes, no], expected: yes, of: answer}"
SCRIPT = """\
evalcore: {{human: [{question}]}}
tests:
  first:
    evalcore: {{human: [{own}]}}
    do: [{{eval: Hello, store_as: answer}}, {{eval: 1.0}}]
  second: {{do: {{eval: 0.5}}}}
"""
WARM = "{name: warmth, question: Warm?, scale: [1, 5], min_score: 3, of: '${answer}!', weight: 2}"
EVALS = """\
workflow:
  version: "1.0"
  blocks:
    total:
      type: code
      inputs: {{invoice: {{from: workflow.invoice}}}}
      code: |
        def main(data):
            return {{"total": 1}}
  workflow: {{name: invoices, entry: total, transitions: [{{from: total, to: null}}]}}
evalcore: {{human: [{question}]}}
evals:
  - name: small
    target: {{type: block, block_id: total}}
    source: {{type: manual, handle_inputs: {{input-json-0: {{type: json, data: 1}}}}}}
    assertion:
      target: {{output_handle_id: output-json-0, path: total}}
      condition: {{kind: equals, expected: 1}}
    evalcore: {{human: [{own}]}}
"""
RIGHT = "{question: Right?, labels: [yes, no], expected: yes}"
NOTE = (
    "{name: note, question: Polite?, labels: [yes, no], expected: yes,"
    " target: {output_handle_id: output-json-0, path: note}}"
)


def judge(evidence: Evidence, **fields: Any) -> Verdict:
    check = Human(question="Polite?", labels=["yes", "no"], expected="yes", **fields)
    case = Case("first", input="in")
    verdict = check.check(Subject(evidence.output or "", UNMEASURED, evidence, case, context()))
    assert isinstance(verdict, Verdict)
    return verdict


def test_questions_of_the_file_and_of_a_test_stand_beside_the_score(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, SCRIPT.format(question=POLITE, own=WARM))

    names = {id_: [each.name for each in case.assertions] for id_, case in cases.items()}

    assert names == {"first": ["score", "human", "warmth"], "second": ["score", "human"]}
    _, polite, warmth = cases["first"].assertions
    assert (polite.weight, polite.required) == (0.0, 1.0)
    assert warmth.weight == 2.0
    assert cases["first"].metadata == {JUDGED_VALUES: ["${answer}!", "answer"]}


def test_a_script_suite_that_asks_has_a_gate_unless_it_says_which(tmp_path: Path) -> None:
    def gates(text: str) -> list[str]:
        return [gate.gate for gate in load_text(tmp_path, text).definition.policy.gates]

    tests = "tests: {first: {do: {eval: 1.0}}}\n"
    assert gates(tests) == []
    assert gates(f"evalcore: {{human: [{POLITE}]}}\n{tests}") == ["pass_rate"]
    assert gates(f"evalcore: {{gates: [], human: [{POLITE}]}}\n{tests}") == []


def test_mistakes_of_questions_in_script_suites_have_their_places(tmp_path: Path) -> None:
    question = "{question: Polite?, labels: [yes, no], expected: maybe, of: answer +}"
    own = "{question: Warm?, scale: [1, 5], min_scor: 3}"

    problems = problems_of(tmp_path, SCRIPT.format(question=question, own=own))

    assert {(problem.line, problem.path) for problem in problems} == {
        (1, "evalcore.human[0].of"),
        (1, "evalcore.human[0].expected"),
        (4, "tests.first.evalcore.human[0].min_scor"),
    }


def test_judged_values_are_texts_and_absent_ones_say_why() -> None:
    values = judged_values(["answer", "${answer}!", "row", "nothing"], {"answer": "Hi", "row": [1]})

    assert values["answer"] == {"text": "Hi"}
    assert values["${answer}!"] == {"text": "Hi!"}
    assert values["row"] == {"text": "[1]"}
    assert "no variable 'nothing'" in values["nothing"]["error"]


def test_people_judge_the_variable_and_are_not_asked_without_one() -> None:
    details = {JUDGED_VALUES: {"answer": {"text": "Hi"}, "gone": {"error": "no variable"}}}
    evidence = Evidence("1.0", details=details)

    waiting = judge(evidence, of="answer")

    assert waiting.outcome is Outcome.BLOCKED
    assert (waiting.details or {})["output"] == "Hi"
    assert "no variable" in judge(evidence, of="gone").message
    assert judge(evidence, of="other").outcome is Outcome.ERROR


def test_questions_of_the_file_and_of_an_eval_stand_beside_the_condition(tmp_path: Path) -> None:
    case = cases_of(tmp_path, EVALS.format(question=RIGHT, own=NOTE))["small"]

    assert [each.name for each in case.assertions] == ["equals", "human", "note"]
    handle = {"output_handle_id": "output-json-0", "path": "note"}
    assert case.assertions[2].params["handle"] == handle


def test_people_judge_what_stands_at_a_handle_and_its_absence_blocks() -> None:
    handles = {"output-json-0": {"type": "json", "data": {"note": "Thanks", "sum": 5}}}
    evidence = Evidence("{}", details={"handle_outputs": handles})

    def at(path: str) -> Verdict:
        return judge(evidence, handle={"output_handle_id": "output-json-0", "path": path})

    assert (at("note").details or {})["output"] == "Thanks"
    assert (at("sum").details or {})["output"] == "5"
    missing = at("notes")
    assert missing.outcome is Outcome.BLOCKED
    assert "annotation" not in (missing.details or {})
    assert "leads nowhere" in missing.message


def test_mistakes_of_questions_in_saved_evals_have_their_places(tmp_path: Path) -> None:
    own = NOTE.replace("path: note", "pat: note")
    question = RIGHT.replace("expected", "expect")

    problems = problems_of(tmp_path, EVALS.format(question=question, own=own))

    assert {(problem.line, problem.path) for problem in problems} == {
        (11, "evalcore.human[0].expect"),
        (19, "evals[0].evalcore.human[0].target.pat"),
    }
