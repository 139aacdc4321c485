"""Judges through the real command line and a real HTTP model server (docs/reference/graders.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evalcore.gates.gate import number
from tests.support.judged import (
    given,
    judge,
    replies,
    reply,
    results,
    run,
    write_suite,
)
from tests.support.model_server import Failure, model_server
from tests.support.model_wire import Answer, Question
from tests.support.shell import Json, evalcore

RUBRIC = [
    {"id": "accuracy", "outcome": "Correct", "weight": 5.0},
    {"id": "reasoning", "outcome": "Clear", "weight": 3.0},
]


def graded(tmp_path: Path, script: Any, *assertions: Any, **test: Any) -> Any:
    """Return what one assertion on a given output comes to, the item, and the server's requests."""
    with model_server(script=script) as server:
        path = write_suite(
            tmp_path, [given("the output", *assertions, **test)], targets=[judge(server)]
        )
        ended = run(path)
        assert ended.out, ended.err
        item = ended.report["cases"][0]["items"][0]
        return item["assertions"][0], item, list(server.requests)


def graded_each(
    tmp_path: Path, scripts: Sequence[Sequence[str]], *assertions: Any, **test: Any
) -> Any:
    """As `graded`, for one test per script, all of one run."""
    left = {f"output no. {number};": replies(*texts) for number, texts in enumerate(scripts)}
    asked: dict[str, list[Question]] = {output: [] for output in left}

    def script(question: Question) -> str:
        (output,) = (each for each in left if each in question.text)
        asked[output].append(question)
        return left[output](question)

    tests = [given(output, *assertions, id=output, **test) for output in left]
    with model_server(script=script) as server:
        ended = run(write_suite(tmp_path, tests, targets=[judge(server)]))
    items = [case["items"][0] for case in ended.report["cases"]]
    return [
        (item["assertions"][0], item, requests)
        for item, requests in zip(items, asked.values(), strict=True)
    ]


def test_a_test_without_assertions_is_graded_by_its_criteria(tmp_path: Path) -> None:
    found, item, (asked,) = graded(tmp_path, replies(reply(0.9)), criteria="is polite")

    assert (found["outcome"], found["score"], item["outcome"]) == ("passed", 0.9, "passed")
    assert "is polite" in str(asked.body["messages"])
    assert "the output" in str(asked.body["messages"])


def test_a_judge_sees_the_images_of_the_input(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG-")
    parts: list[Json] = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image", "value": "a.png"},
    ]
    asked_by = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    _, item, (asked,) = graded(tmp_path, replies(reply(1)), criteria="c", input=asked_by)

    assert item["outcome"] == "passed"
    text, *images = asked.body["messages"][-1]["content"]
    assert "What is it?\n[image: data:image/png;base64,…]\n[image: a.png]" in text["text"]
    assert [image["image_url"]["url"] for image in images] == [
        "data:image/png;base64,QUJD",
        "data:image/png;base64,iVBORy0=",
    ]


def test_a_judge_is_asked_at_temperature_0_for_json_of_the_schema(tmp_path: Path) -> None:
    _, _, (asked,) = graded(tmp_path, replies(reply(1)), criteria="c")

    assert asked.body["temperature"] == 0
    schema = asked.body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert set(schema["schema"]["required"]) == {"score", "assertions", "reasoning"}


def test_a_provider_without_schemas_is_asked_without(tmp_path: Path) -> None:
    def script(question: Question) -> str | Failure:
        if "response_format" in question.body:
            return Failure(400, message="response_format json_schema is not supported")
        return reply(0.8)

    found, _, requests = graded(tmp_path, script, criteria="c")
    assert (found["score"], len(requests)) == (0.8, 2)


MALFORMED = [
        "I would say 0.9",
        '{"score": 1.5}',
        '{"score": "0.9"}',
        '{"score": true}',
        '{"score": NaN}',
        '{"reasoning": "fine"}',
        '{"score": 0.9, "score": 0.1}',
        '[{"score": 0.9}]',
        '{"score": 0.9, "assertions": [{"text": "x"}]}',
        'Sure! {"score": 0.9}',
        '{"score": 0.9} {"score": 0.9}',
        '```json\n{"score": 0.9}\n```\n```json\n{"score": 0.9}\n```',
        '<think>{"score": 0.9}</think>',
        '<think>It has no end. {"score": 0.9}',
        "",
]  # fmt: skip


def test_a_malformed_reply_is_repaired_twice_and_then_an_error(tmp_path: Path) -> None:
    graded = graded_each(tmp_path, [(bad,) for bad in MALFORMED], criteria="c")
    for bad, (found, item, requests) in zip(MALFORMED, graded, strict=True):
        assert (found["outcome"], found["score"], item["outcome"]) == ("error", 0.0, "blocked"), bad
        assert len(requests) == 3
        assert "not valid" in requests[1].text


WELL_FORMED = [
        reply(0.7),
        f"\n{reply(0.7)}\n",
        f"```json\n{reply(0.7)}\n```",
        f"My evaluation:\n```json\n{reply(0.7)}\n```\nThat is all.",
        f"Verdict: ```json {reply(0.7)} ```",
        f"It wrote\n```python\nprint({{}})\n```\nso\n```json\n{reply(0.7)}\n```",
        f"<think>A {{'score': 1}}? No.</think>\n{reply(0.7)}",
        f"<thinking>one</thinking>\n<think>two</think>\nSo:\n```\n{reply(0.7)}\n```",
        f"The prompt opened this.\n</think>\n\n{reply(0.7)}",
        '{"score": 0.7, "reasoning": "it ends with </think> and ```"}',
]  # fmt: skip


def test_the_reply_is_the_object_or_the_one_block_after_any_reasoning(tmp_path: Path) -> None:
    scripts = [("nonsense", "nonsense", good) for good in WELL_FORMED]
    for good, (found, _, requests) in zip(
        WELL_FORMED, graded_each(tmp_path, scripts, criteria="c"), strict=True
    ):
        assert (found["score"], len(requests)) == (0.7, 3), good
        assert found["details"]["votes"][0]["repairs"] == 2


def test_several_judges_come_to_one_score(tmp_path: Path) -> None:
    scores = {"a": 0.9, "b": 0.9, "c": 0.0}
    comes_to = {"mean": (0.6, "failed"), "median": (0.9, "passed"), "majority": (1.0, "passed")}
    grader = {"type": "llm-grader", "judges": ["a", "b", "c"]}
    tests = [
        given("x", {**grader, "aggregation": each}, criteria="c", id=each) for each in comes_to
    ]
    with model_server(script=lambda question: reply(scores[question.model])) as server:
        targets = [judge(server, name) for name in scores]
        found = results(run(write_suite(tmp_path, tests, targets=targets)))

    for aggregation, (score, outcome) in comes_to.items():
        one = found[aggregation]
        assert (one["score"], one["outcome"]) == (pytest.approx(score), outcome)
        assert [vote["judge"] for vote in one["details"]["votes"]] == ["a", "b", "c"]


def reply_of(**satisfied: bool) -> str:
    found = [{"id": name, "satisfied": value} for name, value in satisfied.items()]
    return json.dumps({"checks": found})


QUOTED = {"'accuracy'": True, '"reasoning"': False, "more": True}
# How many calls there are: what is missing is asked for once, and not after two repairs.
ANSWERED: list[tuple[Sequence[str], int]] = [
    ((reply_of(accuracy=True, reasoning=False),), 1),
    ((reply_of(accuracy=True),), 2),
    (("nonsense", "nonsense", reply_of(accuracy=True)), 3),
    ((reply_of(**QUOTED),), 1),
]


def test_a_criterion_that_is_missing_is_asked_for_once_and_then_not_met(tmp_path: Path) -> None:
    rubrics = {"type": "rubrics", "criteria": RUBRIC}
    graded = graded_each(tmp_path, [script for script, _ in ANSWERED], rubrics)
    assert [(found["score"], len(asked)) for found, _, asked in graded] == [
        (0.625, calls) for _, calls in ANSWERED
    ]
    assert [one["passed"] for one in graded[0][0]["details"]["assertions"]] == [True, False]
    assert "'reasoning'" in graded[1][2][1].body["messages"][-1]["content"]


WITHOUT_IDS: list[Any] = [
    [],
    [{"id": "other", "satisfied": True}],
    [{"id": "accuracy", "satisfied": True}, {"id": "reasons", "satisfied": True}],
]


def test_a_reply_without_the_ids_of_the_criteria_is_no_verdict(tmp_path: Path) -> None:
    scripts = [(json.dumps({"checks": checks}),) for checks in WITHOUT_IDS]
    rubrics = {"type": "rubrics", "criteria": RUBRIC}
    for found, item, requests in graded_each(tmp_path, scripts, rubrics):
        assert (found["outcome"], item["outcome"], len(requests)) == ("error", "blocked", 3)
        assert '"accuracy", "reasoning"' in requests[1].prompt


MIN_SCORE = {"score_ranges": {"0": "bad", "10": "good"}}
REQUIRED: list[tuple[Json, Json, str]] = [
    ({"required": True}, {"satisfied": False}, "failed"),
    ({"required": True}, {"satisfied": True}, "passed"),
    ({"required": False}, {"satisfied": False}, "passed"),
    ({"min_score": 0.6, **MIN_SCORE}, {"score": 5}, "failed"),
    ({"min_score": 0.5, **MIN_SCORE}, {"score": 5}, "passed"),
]


def test_a_required_criterion_that_is_not_met_fails_the_test(tmp_path: Path) -> None:
    answers, tests = {}, []
    for place, (criterion, answer, _) in enumerate(REQUIRED):
        criteria = [
            {"id": "most", "outcome": "m", "weight": 99},
            {"id": f"x{place}", "outcome": "o", **criterion},
        ]
        rubrics = {"type": "rubrics", "criteria": criteria}
        tests.append(given("x", rubrics, id=str(place)))
        answers[f"x{place}"] = answer

    def script(question: Question) -> str:
        (name,) = (name for name in answers if name in question.text)
        checks = [{"id": "most", "satisfied": True}, {"id": name, **answers[name]}]
        return json.dumps({"checks": checks})

    with model_server(script=script) as server:
        ended = run(write_suite(tmp_path, tests, targets=[judge(server)]))
    items = [case["items"][0] for case in ended.report["cases"]]
    assert [item["outcome"] for item in items] == [outcome for *_, outcome in REQUIRED]
    assert all(one["score"] > 0.98 for one in results(ended).values())  # still reported


def test_scored_criteria_earn_a_share_of_their_weight(tmp_path: Path) -> None:
    ranges = [
        {"score_range": [0, 3], "outcome": "bad"},
        {"score_range": [4, 10], "outcome": "good"},
    ]
    criteria = [{"id": "x", "outcome": "o", "score_ranges": ranges}, "says hello"]
    checks = [{"id": "x", "score": 5}, {"id": "criterion-2", "satisfied": True}]
    script = replies(json.dumps({"checks": checks}))
    found, _, _ = graded(tmp_path, script, {"type": "rubrics", "criteria": criteria})

    assert found["score"] == 0.75


def test_required_and_negate_work_on_judges(tmp_path: Path) -> None:
    options: list[Json] = [{}, {"required": 0.6}, {"min_score": 0.95}, {"negate": True}]
    tests = [
        given("x", {"type": "llm-grader", **more}, criteria="c", id=str(place))
        for place, more in enumerate(options)
    ]
    with model_server(script=replies(reply(0.7))) as server:
        ended = run(write_suite(tmp_path, tests, targets=[judge(server)]))
    items = [case["items"][0] for case in ended.report["cases"]]
    assert {item["outcome"] for item in items} == {"failed"}
    found = [(one["outcome"], round(one["score"], 6)) for one in results(ended).values()]
    assert found == [("failed", 0.7), ("passed", 0.7), ("failed", 0.7), ("passed", 0.3)]


def test_a_prompt_is_read_from_its_file_and_its_variables_are_filled(tmp_path: Path) -> None:
    (tmp_path / "graders").mkdir()
    (tmp_path / "graders" / "depth.md").write_text("How deep? {{ output }} for {{metadata.x.y}}")
    assertion = {"type": "llm-grader", "prompt": "./graders/depth.md"}
    found, _, (asked,) = graded(
        tmp_path, replies(reply(1)), assertion, metadata={"x": {"y": "experts"}}, criteria="crit"
    )
    text = asked.body["messages"][1]["content"]

    assert text.startswith("How deep?")
    assert "\nexperts\n" in text
    assert text.count("\nthe output\n") == 1
    assert "\ncrit\n" in text  # graders receive the criteria by themselves
    assert len(found["details"]["prompt_sha256"]) == 64


def test_a_wrong_prompt_is_told_when_the_suite_is_loaded(tmp_path: Path) -> None:
    wrong = {
        "./nowhere.md": "there is no file './nowhere.md'",
        "file://nowhere": "there is no file 'nowhere'",
        "Is {{ouput}} good?": "unknown variable '{{ouput}}'. Did you mean 'output'?",
    }
    tests = [given("x", {"type": "llm-grader", "prompt": each}, id=each) for each in wrong]
    ended = evalcore("validate", write_suite(tmp_path, tests).name, cwd=tmp_path)

    assert ended.code == 2
    for message in wrong.values():
        assert message in ended.err


def test_an_unknown_judge_is_a_load_error_and_none_an_error_that_names_the_ways(
    tmp_path: Path,
) -> None:
    path = write_suite(tmp_path, [given("x", {"type": "llm-grader", "judge": "j"})])
    ended = evalcore("validate", path.name, cwd=tmp_path)
    assert (ended.code, "unknown target 'j'" in ended.err) == (2, True)

    found = results(run(write_suite(tmp_path, [given("x", criteria="c")])))["a"]
    assert found["outcome"] == "error"
    assert "`grader_target` of the target" in found["message"]


def test_the_judge_of_the_target_goes_before_the_suites(tmp_path: Path) -> None:
    with model_server(
        script=lambda question: reply(0.9 if question.model == "own" else 0.1)
    ) as server:
        targets = [
            {"name": "t", "provider": "echo", "grader_target": "own"},
            judge(server, "own"),
            judge(server, "suite"),
        ]
        test = {"id": "a", "input": "hello", "criteria": "c"}
        execution = {"target": "t", "grader_target": "suite"}
        path = write_suite(tmp_path, [test], targets=targets, execution=execution)
        assert results(run(path))["a"]["score"] == 0.9


def test_judges_have_a_cost_line_of_their_own(tmp_path: Path) -> None:
    with model_server(script=replies(reply(1))) as server:
        targets = [judge(server, name="judge", model="gpt-4o")]
        path = write_suite(tmp_path, [given("x", criteria="c")], targets=targets)
        report = run(path).report

    assert report["summary"]["judge_cost_usd"] > 0
    assert report["summary"]["total_cost_usd"] is None
    assert report["cases"][0]["items"][0]["assertions"][0]["details"]["token_usage"]["input"] > 0


def test_cost_under_counts_judges_when_it_is_told_to(tmp_path: Path) -> None:
    gate = {"gate": "cost_under", "max": 0}
    with model_server(script=replies("hello", reply(1))) as server:
        target = judge(server, name="t", model="gpt-4o")
        test = {"id": "a", "input": "hello", "criteria": "c"}
        gates = [
            {**gate, **more}
            for more in (
                *({}, {"include_judges": True}),
                *({"per_case": True}, {"perCase": True, "includeJudges": True}),
            )
        ]
        path = write_suite(tmp_path, [test], targets=[target], execution={"target": "t",
                           "grader_target": "t"}, evalcore={"gates": gates})  # fmt: skip
        report = run(path).report
    targets, judges = (report["summary"][f"{name}_cost_usd"] for name in ("total", "judge"))
    assert targets > 0
    assert judges > 0
    messages = [gate["message"] for gate in report["gates"][:4]]
    case, both = "of case 'a' in variant 'default' ", number(targets + judges)
    assert messages == [
        f"total cost of targets (USD) {number(targets)} ≥ 0; "
        f"{number(judges)} USD of judges not counted",
        f"total cost of targets and judges (USD) {both} ≥ 0",
        f"cost of targets (USD) {case}{number(targets)} ≥ 0; "
        f"{number(judges)} USD of judges not counted",
        f"cost of targets and judges (USD) {case}{both} ≥ 0",
    ]


def test_recorded_judges_are_replayed_and_regraded(tmp_path: Path) -> None:
    replied = [reply(0.25), "nonsense", reply(0.75)]
    assertion = {"type": "llm-grader", "votes": 2}
    with model_server(script=replies(*replied)) as server:
        tests = [given("x", assertion, criteria="c")]
        path = write_suite(tmp_path, tests, targets=[judge(server)])
        recorded = run(path, "--mode", "record")
        assert (results(recorded)["a"]["score"], server.stats().requests) == (0.5, 3)

        replayed = run(path, "--mode", "replay")
        assert (
            replayed.report["cases"][0]["items"][0]["assertions"]
            == (recorded.report["cases"][0]["items"][0]["assertions"])
        )
        assert server.stats().requests == 3

        tests[0]["assertions"][0]["votes"] = 1
        write_suite(tmp_path, tests, targets=[judge(server)])
        identity = replayed.report["run"]["id"]
        regraded = evalcore("regrade", identity, path.name, "--mode", "replay", "--json",
                            store=tmp_path / "store", cwd=tmp_path)  # fmt: skip
        assert results(regraded)["a"]["score"] == 0.25, regraded.err
        assert server.stats().requests == 3


def test_a_judge_may_be_any_target(tmp_path: Path) -> None:
    program = f"import sys; sys.stdin.read(); print('{reply(0.6)}')"
    targets = [{"name": "judge", "provider": "command", "command": ["python3", "-c", program]}]
    path = write_suite(tmp_path, [given("x", criteria="c")], targets=targets)

    assert results(run(path))["a"]["score"] == 0.6


def test_an_anthropic_judge_answers_by_a_tool(tmp_path: Path) -> None:
    verdict = json.loads(reply(0.9))
    script = lambda _: Answer(tool_calls=({"name": "answer", "arguments": verdict},))  # noqa: E731
    with model_server(script=script) as server:
        targets = [judge(server, provider="anthropic")]
        path = write_suite(tmp_path, [given("x", criteria="c")], targets=targets)
        assert results(run(path))["a"]["score"] == 0.9


@pytest.mark.parametrize("provider", ["fixture", "openai"])
def test_what_a_target_strips_of_its_answer_is_not_graded(tmp_path: Path, provider: str) -> None:
    thought = '<think>Berlin?</think>\n{"city": "Rome"}'
    checks = [{"type": "is-json"}, {"type": "contains", "value": "Berlin"}]
    test: Json = {"id": "a", "input": "x", "assertions": checks}
    with model_server(script=replies(thought)) as server:
        target = {"name": "default", "provider": "fixture"}
        if provider == "openai":
            target = judge(server, "default")
        else:
            test["fixtures"] = {"output": thought}
        path = write_suite(tmp_path, [test], targets=[{**target, "reasoning": "strip"}])
        outcomes = [
            each["outcome"] for each in run(path).report["cases"][0]["items"][0]["assertions"]
        ]
    assert outcomes == ["passed", "failed"]


def test_an_unknown_word_for_reasoning_does_not_load(tmp_path: Path) -> None:
    target = {"name": "default", "provider": "echo", "reasoning": "cut"}
    ended = run(write_suite(tmp_path, [given("x", {"type": "is-json"})], targets=[target]))
    assert ended.code == 2
    assert "targets[0].reasoning" in ended.err
