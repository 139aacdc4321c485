"""Test files: conversations whose turns are graded, from the file to the score."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.base import CheckContext
from evalcore.checks.grading import grade, of_turn
from evalcore.execution.item import ItemRunner, RunInputs
from evalcore.execution.row import FinishedItem, with_results
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.identity import case_identity
from evalcore.model.run import State
from evalcore.model.suite import Case, ScoreRule
from evalcore.model.target import DEFAULT_VARIANT
from evalcore.planning.codec import CaseEncoder
from evalcore.planning.expand import WorkItem
from evalcore.planning.spool import PlanPart, compress_frame
from evalcore.targets.conversation import Conversation
from evalcore.targets.work import Work
from evalcore.trust.imports import ImportPolicy
from tests.unit.formats.loading import cases_of, load_text, problems_of

TARGETS = "targets: [{name: default, provider: echo}]"
TURNS = """[{input: one, assertions: [{type: contains, value: one}, {type: contains, value: no}]},
    {input: two, assertions: [{type: contains, value: two}]}, {input: three}]"""


def conversation(folder: Path, fields: str = "", turns: str = TURNS) -> Case:
    test = f"{{id: a, input: [{{role: system, content: s}}], turns: {turns}, {fields}}}"
    return cases_of(folder, f"{TARGETS}\ntests: [{test}]")["a"]


class Repeating:
    """Answers with what the last message says and how many messages there are."""

    def waits(self, case: Case) -> bool:
        return case.conversation

    async def answer(self, work: Work) -> Evidence:
        text = f"{work.messages[-1]['content']} of {len(work.messages)}"
        return Evidence(text, metrics=Metrics(latency_ms=len(work.messages)))


def answered(case: Case, folder: Path) -> Evidence:
    work = Work(case=case, variant=DEFAULT_VARIANT, iteration=0, item=0, prompt="",
                messages=tuple(case.input), folder=folder, imports=ImportPolicy())  # fmt: skip
    return asyncio.run(Conversation(Repeating()).answer(work))


def executed(folder: Path, fields: str, turns: str) -> FinishedItem:
    """Return the item of a conversation with the target `echo`, as a run ends it."""
    case = conversation(folder, fields, turns)
    suite = load_text(folder, f"{TARGETS}\ntests: [{{id: b, input: x, criteria: y}}]").definition
    runner = ItemRunner(suite, RunInputs(folder, ImportPolicy()))
    item = WorkItem(0, case, DEFAULT_VARIANT, suite.targets["default"], 0, "", "")
    return asyncio.run(runner.run(item))


def finished(case: Case, folder: Path) -> FinishedItem:
    evidence, context = answered(case, folder), CheckContext(folder, ImportPolicy())
    results = asyncio.run(grade(case.assertions, evidence, case, context))
    item = WorkItem(0, case, DEFAULT_VARIANT, None, 0, "", "")
    done = FinishedItem(item, State.COMPLETED, 0, 0, evidence)
    return with_results(done, results, ScoreRule.WEIGHTED)


def test_each_turn_is_asked_with_the_answers_before_it(tmp_path: Path) -> None:
    evidence = answered(conversation(tmp_path), tmp_path)

    turns = {"turn-1": "one of 2", "turn-2": "two of 4", "turn-3": "three of 6"}
    transcript = evidence.outputs["conversation"]
    assert evidence.outputs == {**turns, "conversation": transcript}
    assert (evidence.output, transcript[:10]) == ("three of 6", "[system]\ns")
    assert evidence.block_metrics["turn-2"].latency_ms == 4


def test_a_window_bounds_the_messages_of_a_turn(tmp_path: Path) -> None:
    evidence = answered(conversation(tmp_path, "window_size: 1"), tmp_path)

    assert evidence.outputs["turn-3"] == "three of 3"


@pytest.mark.parametrize(
    ("fields", "score"),
    [
        pytest.param("", 0.75, id="mean"),
        pytest.param("aggregation: min", 0.5, id="min"),
        pytest.param("aggregation: max", 1.0, id="max"),
        pytest.param("on_turn_failure: stop", 0.25, id="stop"),
        pytest.param("assertions: [{type: contains, value: '[system]'}]", 2.5 / 3, id="whole"),
    ],
)
def test_the_score_is_that_of_the_turns(tmp_path: Path, fields: str, score: float) -> None:
    item = finished(conversation(tmp_path, fields), tmp_path)

    assert item.score == pytest.approx(score)
    assert item.outcome == ("passed" if score >= 0.8 else "failed")


STOPPING = """[{input: one, assertions: [{type: contains, value: %s}]},
    {input: two, assertions: [{type: contains, value: %s}]}, {input: three},
    {input: four, assertions: [{type: contains, value: four}]}]"""
STOP = "on_turn_failure: stop, assertions: [{type: contains, value: '[user]'}]"


def test_turns_after_one_that_fails_are_not_asked(tmp_path: Path) -> None:
    item = executed(tmp_path, STOP, STOPPING % ("one", "no"))

    assert item.evidence is not None
    assert set(item.evidence.outputs) == {"turn-1", "turn-2", "conversation"}
    assert [(result.block, result.score) for result in item.results] == [
        ("turn-1", 1.0),
        ("turn-2", 0.0),
        ("turn-4", 0.0),
        ("conversation", 1.0),
    ]
    assert item.results[2].message == "not asked: turn-2 did not pass (on_turn_failure: stop)"


def test_turns_are_asked_as_long_as_they_pass(tmp_path: Path) -> None:
    item = executed(tmp_path, STOP, STOPPING % ("one", "two"))

    assert item.evidence is not None
    assert item.evidence.output == "four"
    assert (item.score, item.outcome) == (1.0, "passed")


def test_a_turn_is_checked_once(tmp_path: Path) -> None:
    count = [sys.executable, "-c", "open('count', 'a').write('x'); print('{\"score\": 1}')"]
    grader = json.dumps({"type": "code-grader", "command": count})
    turns = f"[{{input: one, assertions: [{grader}]}}, {{input: two}}]"

    item = executed(tmp_path, "on_turn_failure: stop", turns)

    assert [result.outcome for result in item.results] == ["passed"]
    assert (tmp_path / "count").read_text("utf-8") == "x"


def test_a_failed_turn_of_a_fixture_says_that_later_turns_do_not_count(tmp_path: Path) -> None:
    answers = "[{role: assistant, content: x}, {role: assistant, content: y}]"
    check = "assertions: [{type: equals, value: y}]"
    turns = f"[{{input: a, {check}}}, {{input: b, {check}}}]"
    fields = f"on_turn_failure: stop, fixtures: {{output: y, messages: {answers}}}"

    item = executed(tmp_path, fields, turns)

    assert item.results[1].message == "turn-1 did not pass (on_turn_failure: stop)"


def test_what_decides_the_next_turn_is_part_of_an_executions_identity(tmp_path: Path) -> None:
    def identity(fields: str, value: str) -> bytes:
        return case_identity(conversation(tmp_path, fields, STOPPING % ("one", value)))

    assert identity(STOP, "two") != identity(STOP, "no")
    assert identity("criteria: c", "two") == identity("criteria: c", "no")


def test_a_turn_is_graded_by_what_was_said_until_then(tmp_path: Path) -> None:
    turns = "[{input: one}, {input: two, expected_output: zwei}, {input: three}]"
    case = conversation(tmp_path, turns=turns)
    (grader,) = case.assertions
    assert case.turns is not None

    turn, evidence = of_turn(case, case.turns, answered(case, tmp_path), 2)

    assert (grader.type, grader.block) == ("llm-grader", "turn-2")
    assert [message["content"] for message in turn.input] == ["s", "one", "one of 2", "two"]
    assert turn.expected_output == "zwei"
    assert [message["content"] for message in evidence.details["messages"]] == ["two of 4"]


def test_criteria_alone_grade_the_whole_conversation(tmp_path: Path) -> None:
    case = conversation(tmp_path, "criteria: kind", turns="[{input: one}]")

    assert [(each.type, each.block) for each in case.assertions] == [("llm-grader", "conversation")]


def test_turns_stand_in_the_plan(tmp_path: Path) -> None:
    case = conversation(tmp_path, "window_size: 2, aggregation: min")
    encoder = CaseEncoder()
    encoder.add(case)

    (decoded,) = PlanPart(compress_frame(encoder.block())).cases()

    assert decoded == case
    assert decoded.turns is not None
    assert decoded.turns[:3] == (3, "min", 2)


def test_a_fixture_answers_each_turn(tmp_path: Path) -> None:
    answers = "[{role: assistant, content: x}, {role: assistant, content: y}]"
    turns = "[{input: one}, {input: two, assertions: [{type: equals, value: y}]}]"
    fields = f"fixtures: {{output: y, messages: {answers}}}"

    fixture = conversation(tmp_path, fields, turns).fixture

    assert fixture is not None
    assert (fixture.outputs["turn-1"], fixture.outputs["turn-2"]) == ("x", "y")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("aggregation: min, criteria: c", "has no effect without 'turns'"),
        ("mode: conversation, criteria: c", "has no effect without 'turns'"),
        ("turns: [{input: x}]", "needs one of 'assertions'"),
        ("turns: [{inputs: x}], criteria: c", "unknown key 'inputs'"),
        ("turns: [{input: x}], criteria: c, conversation: true", "keep one of them"),
        ("turns: [{input: x}], criteria: c, fixtures: {output: y}", "has to hold 1 answer, one"),
        ("turns: [{input: x, assertions: [{type: containz}]}]", "unknown assertion 'containz'"),
    ],
)
def test_wrong_turns_are_a_mistake(tmp_path: Path, fields: str, message: str) -> None:
    problems: Any = problems_of(tmp_path, f"{TARGETS}\ntests: [{{id: a, input: hi, {fields}}}]")

    assert message in "; ".join(problem.message for problem in problems)
