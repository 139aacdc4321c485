"""Programs, composites, trajectories, fields, measures (docs/reference/graders.md)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support.judged import given, judge, reply, results, run, write_suite
from tests.support.model_server import model_server
from tests.support.model_wire import Answer
from tests.support.processes import is_running, until
from tests.support.shell import Json, evalcore


def graded(tmp_path: Path, output: str, assertion: Any, **test: Any) -> Json:
    """Return the assertion's result on a given output."""
    path = write_suite(tmp_path, [given(output, assertion, **test)])
    return results(run(path))["a"]


def graded_each(tmp_path: Path, *tests: Json, **level: Any) -> list[Json]:
    """Return the assertion's result of each test, all of one run."""
    named = [{**test, "id": str(number)} for number, test in enumerate(tests)]
    found = results(run(write_suite(tmp_path, named, **level)))
    return [found[test["id"]] for test in named]


def program(tmp_path: Path, text: str, name: str = "grade.py") -> Json:
    """Return a code grader that runs a Python program."""
    (tmp_path / name).write_text(f"import json, os, sys, time\n{text}\n")
    return {"type": "code-grader", "command": [sys.executable, name]}


def test_a_program_is_told_all_of_the_item(tmp_path: Path) -> None:
    assertion = program(
        tmp_path,
        "told = json.load(sys.stdin)\n"
        "print(json.dumps({'score': 1, 'details': told, 'assertions': []}))",
    )
    found = graded(
        tmp_path,
        "out",
        {**assertion, "config": {"k": 1}},
        expected_output="want",
        criteria="crit",
        metadata={"m": 2},
        fixtures={"output": "out", "metrics": {"latency_ms": 5, "cost_usd": 0.5,
                                               "input_tokens": 3, "output_tokens": 4}},
    )  # fmt: skip
    told = found["details"]["details"]

    assert told["input"] == [{"role": "user", "content": "hello"}]
    assert told["expected_output"] == [{"role": "assistant", "content": "want"}]
    assert (told["output"], told["criteria"], told["metadata"]) == ("out", "crit", {"m": 2})
    assert told["output_messages"] == [{"role": "assistant", "content": "out"}]
    assert told["token_usage"] == {"input": 3, "output": 4}
    assert (told["cost_usd"], told["duration_ms"], told["config"]) == (0.5, 5, {"k": 1})


ANSWERS: list[tuple[str, str, float, str]] = [
        ("print(json.dumps({'score': 0.9}))", "passed", 0.9, ""),
        ("print(json.dumps({'score': 0.3, 'assertions': [{'text': 'no x', 'passed': False}]}))",
         "failed", 0.3, "no x"),
        ("print('{\"score\": 1}'); sys.stderr.write('boom'); sys.exit(3)",
         "error", 0.0, "exit code 3: boom"),
        ("print('why not'); sys.exit(1)", "error", 0.0, "exit code 1: why not"),
        ("print('fine'); sys.stderr.write('why')", "error", 0.0, "no JSON: 'fine': why"),
        ("print('[1]')", "error", 0.0, "no JSON object"),
        ("print(json.dumps({'score': 1.5}))", "error", 0.0, "from 0 to 1"),
        ("print(json.dumps({'score': True}))", "error", 0.0, "from 0 to 1"),
        ("print('{\"score\": NaN}')", "error", 0.0, "from 0 to 1"),
        ("print(json.dumps({'pass': True}))", "error", 0.0, "from 0 to 1"),
        ("print(json.dumps({'score': 1, 'assertions': [{'text': 'x'}]}))", "error", 0.0,
         "list of {text, passed, evidence}"),
        ("os.kill(os.getpid(), 9)", "error", 0.0, "killed by signal 9"),
]  # fmt: skip


def test_what_a_program_answers(tmp_path: Path) -> None:
    tests = [
        given("x", program(tmp_path, text, f"grade{number}.py"))
        for number, (text, *_) in enumerate(ANSWERS)
    ]
    for found, (text, outcome, score, message) in zip(
        graded_each(tmp_path, *tests), ANSWERS, strict=True
    ):
        assert (found["outcome"], found["score"]) == (outcome, score), text
        assert message in found["message"], text


ASKING = """
import urllib.error, urllib.request
url, token = os.environ["AGENTV_TARGET_PROXY_URL"], os.environ["AGENTV_TARGET_PROXY_TOKEN"]
def call(path, value=None, token=token):
    body = None if value is None else json.dumps(value).encode()
    headers = {"Authorization": "Bearer " + token}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, body, headers)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
seen = [
    call("/info"),
    call("/invoke", {"question": "Is it?", "systemPrompt": "Yes or no."}),
    call("/invoke", {"question": "x", "target": "stranger"}),
    call("/invoke", {"question": "x"}, token="guessed"),
    call("/invokeBatch", {"requests": [{"question": "1"}, {"question": "2"}, {"question": "3"}]}),
    call("/invokeBatch", {"requests": [{"question": "1", "target": "default"}, {}]}),
    call("/invoke", {"question": "x"}),
    call("/invoke", {"question": "x"}),
]
print(json.dumps({"score": 1, "details": seen}))
"""


def test_a_program_asks_the_judge_as_often_as_it_may(tmp_path: Path) -> None:
    with model_server(script=lambda _: "yes") as server:
        access = {"target": {"max_calls": 3}}
        test = given("out", {**program(tmp_path, ASKING), **access})
        found = results(run(write_suite(tmp_path, [test], targets=[judge(server)])))["a"]
        questions = list(server.requests)

    info, reply_, stranger, unauthorized, too_many, batch, last, over = found["details"]["details"]
    assert info[1]["maxCalls"] == 3
    assert (reply_[0], reply_[1]["rawText"]) == (200, "yes")
    assert reply_[1]["tokenUsage"]["input"] > 0
    assert stranger == [400, {"error": "Unknown target 'stranger'. Available: default"}]
    assert (unauthorized[0], too_many[0], last[0], over[0]) == (401, 429, 200, 429)
    assert [each["rawText"] for each in batch[1]["responses"]] == [
        "yes", "Error: Missing required field: question",
    ]  # fmt: skip
    assert len(questions) == found["details"]["judge_calls"] == 3


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    # A shell is there at once; Python's start may take longer than the program has time.
    command = "sleep 600 & echo $! >child; echo stuck >&2; wait"
    grader = {"type": "code-grader", "command": command, "timeout_ms": 3_000}
    found = graded(tmp_path, "x", grader)
    child = int((tmp_path / "child").read_text())

    assert (found["outcome"], "longer than 3 s: stuck" in found["message"]) == ("error", True)
    until(lambda: not is_running(child))


MEMBERS = [
    {"name": "a", "type": "contains", "value": "x", "weight": 3},
    {"name": "b", "type": "contains", "value": "nope"},
]


def test_a_program_aggregates_the_members(tmp_path: Path) -> None:
    text = (
        "found = json.load(sys.stdin)['results']\n"
        "print(json.dumps({'score': max(one['score'] for one in found.values())}))"
    )
    aggregator = {**program(tmp_path, text), "type": "code-grader"}
    found = graded(
        tmp_path, "x", {"type": "composite", "assertions": MEMBERS, "aggregator": aggregator}
    )
    assert (found["score"], found["outcome"]) == (1.0, "passed")


def test_a_judge_aggregates_the_members(tmp_path: Path) -> None:
    with model_server(script=lambda _: reply(0.85)) as server:
        aggregator = {"type": "llm-grader", "prompt": "Decide: {{EVALUATOR_RESULTS_JSON}}"}
        assertion = {"type": "composite", "assertions": MEMBERS, "aggregator": aggregator}
        path = write_suite(tmp_path, [given("x", assertion)], targets=[judge(server)])
        found = results(run(path))["a"]
        (asked,) = server.requests

    assert found["score"] == 0.85
    assert '"score": 1.0' in asked.body["messages"][1]["content"]


def test_members_that_are_wrong_are_told_with_their_place(tmp_path: Path) -> None:
    assertion = {"type": "composite", "assertions": [{"type": "contain", "value": "x"}]}
    path = write_suite(tmp_path, [given("x", assertion)])
    ended = evalcore("validate", path.name, cwd=tmp_path)

    assert ended.code == 2
    assert "tests[0].assertions[0].assertions[0].type: unknown assertion 'contain'" in ended.err


CALLS = [
    {"name": "search", "arguments": {"q": "a", "n": 3}},
    {"name": "read", "arguments": {"path": "x"}, "duration_ms": 30},
    {"name": "search", "arguments": {"q": "b"}},
]


# Those of which tests/unit/checks/test_structured_checks.py says nothing.
TRAJECTORIES: list[tuple[Json, float]] = [
        ({"mode": "any_order", "minimums": {"search": 2, "read": 1}}, 1.0),
        ({"mode": "in_order", "expected": [{"tool": "search", "args": {"q": "b"}}]}, 1.0),
        ({"mode": "subset", "expected": []}, 0.0),
        ({"mode": "exact", "expected": []}, 0.0),
        ({"mode": "superset", "expected": []}, 1.0),
        ({"mode": "in_order", "expected": []}, 1.0),
        ({"mode": "in_order", "expected": [{"tool": "read", "max_duration_ms": 10}]}, 0.5),
]  # fmt: skip


def test_trajectories_are_scored_by_their_share(tmp_path: Path) -> None:
    fixtures = {"output": "x", "tool_calls": CALLS}
    found = graded_each(
        tmp_path,
        *(
            given("x", {"type": "tool-trajectory", **options}, fixtures=fixtures)
            for options, _ in TRAJECTORIES
        ),
    )
    assert [one["score"] for one in found] == pytest.approx([score for _, score in TRAJECTORIES])


def test_the_tool_calls_of_a_model_are_its_trajectory(tmp_path: Path) -> None:
    calls = ({"name": "search", "arguments": {"q": "a"}},)
    with model_server(script=lambda _: Answer("done", calls)) as server:
        test = {
            "id": "a",
            "input": "x",
            "assertions": [
                {"type": "tool-trajectory", "mode": "any_order", "minimums": {"search": 1}},
                {"type": "execution-metrics", "max_tool_calls": 1, "max_tokens": 100,
                 "max_llm_calls": 0, "max_duration_ms": 60_000},
            ],
        }  # fmt: skip
        targets = [judge(server, name="default", tools=[{"name": "search", "parameters": {}}])]
        report = run(write_suite(tmp_path, [test], targets=targets)).report
    first, second = report["cases"][0]["items"][0]["assertions"]

    assert first["outcome"] == "passed"
    assert (second["score"], second["outcome"]) == (0.75, "failed")


NESTED = [
    {"name": "book", "arguments": {"guest": {"name": "Ida", "age": 7}, "rooms": [{"beds": 2}]}},
    {"name": "pay", "function": {"name": "pay", "arguments": '{"card": {"no": "1"}}'}},
]


NAMED_ARGUMENTS: list[tuple[str, Json, list[str], float]] = [
    ("book", {"guest": {"name": "Ida", "age": 8}}, ["guest.name"], 1.0),
    ("book", {"guest": {"name": "Ida", "age": 8}}, ["guest.name", "guest.age"], 0.0),
    ("book", {"guest": {"name": "Ida"}}, ["guest"], 0.0),
    ("book", {"rooms": [{"beds": 2}]}, ["rooms[0].beds", "rooms.0.beds"], 1.0),
    ("book", {"guest": {"name": "Ida"}}, ["guest.name", "notes", "guest.phone"], 1.0),
    ("pay", {"card": {"no": "2"}}, ["card.no"], 0.0),
]


def test_named_arguments_are_compared_by_their_paths(tmp_path: Path) -> None:
    trajectory = {"type": "tool-trajectory", "mode": "superset"}
    fixtures = {"output": "x", "tool_calls": NESTED}
    tests = []
    for tool, args, names, _ in NAMED_ARGUMENTS:
        expected = [{"tool": tool, "args": args, "args_match": names}]
        tests.append(given("x", {**trajectory, "expected": expected}, fixtures=fixtures))
    scores = [found["score"] for found in graded_each(tmp_path, *tests)]
    assert scores == [score for *_, score in NAMED_ARGUMENTS]


INVOICE = {"number": "A-1", "total": 100.0, "date": "2025-01-15", "lines": [{"price": 5}]}


FIELDS: list[tuple[Json, Json, float]] = [
        ({"path": "number", "match": "exact"}, {"number": "a-1"}, 0.0),
        ({"path": "number"}, {}, 0.0),
        ({"path": "date", "match": "date"}, {"date": "2025/01/15"}, 1.0),
        ({"path": "date", "match": "date"}, {"date": "2025-1-15"}, 1.0),
        ({"path": "date", "match": "date"}, {"date": "15-January-2025"}, 1.0),
        ({"path": "date", "match": "date"}, {"date": "soon"}, 0.0),
        ({"path": "lines[0].price"}, {"lines": [{"price": 5.0}]}, 1.0),
]  # fmt: skip


def test_fields_are_compared(tmp_path: Path) -> None:
    tests = []
    for field, value, _ in FIELDS:
        assertion = {"type": "field-accuracy", "fields": [field]}
        tests.append(given(json.dumps(value), assertion, expected_output=INVOICE))
    scores = [found["score"] for found in graded_each(tmp_path, *tests)]
    assert scores == [score for *_, score in FIELDS]


def field_tests(*expected: Any) -> list[dict[str, Any]]:
    """Return tests `a`, `b`, … whose outputs are right, with these expected outputs."""
    output = json.dumps({"number": "A-1", "total": 5})
    return [
        given(output, id=name, expected_output=value)
        for name, value in zip("abc", expected, strict=False)
    ]


def test_a_field_that_one_expected_output_lacks_is_skipped_there(tmp_path: Path) -> None:
    tests = field_tests({"total": 5}, {"number": "A-1", "total": 6}, {})
    suite: Json = {"assertions": [{"type": "field-accuracy",
                             "fields": [{"path": "number"}, {"path": "total"}]}]}  # fmt: skip
    found = results(run(write_suite(tmp_path, tests, **suite)))

    assert (found["a"]["score"], found["a"]["outcome"]) == (1.0, "passed")
    assert (found["b"]["score"], found["b"]["outcome"]) == (0.5, "failed")
    assert (found["c"]["score"], found["c"]["outcome"]) == (0.0, "failed")


def test_a_field_that_no_expected_output_has_is_an_error(tmp_path: Path) -> None:
    tests = field_tests({"total": 5}, {"number": "A-1"})
    suite: Json = {"assertions": [{"type": "field-accuracy",
                             "fields": [{"path": "number"}, {"path": "totle"}]}]}  # fmt: skip
    ended = run(write_suite(tmp_path, tests, **suite))

    assert {one["outcome"] for one in results(ended).values()} == {"error"}
    assert "no test's 'expected_output' has 'totle'" in results(ended)["a"]["message"]
    assert ended.code == 4


def test_similar_measures_the_cosine_of_embeddings(tmp_path: Path) -> None:
    outputs = {"the cat sat": (1.0, "passed"), "the cat": (0.8165, "passed"),
               "dogs bark": (0.0, "failed")}  # fmt: skip
    assertion = {"type": "similar", "value": "the cat sat", "threshold": 0.8}
    tests = [given(output, assertion, id=output) for output in outputs]
    # Without a value it is the expected output.
    tests.append(given("a b", {"type": "similar", "threshold": 1}, expected_output="b a", id="b a"))
    with model_server() as server:
        targets = [judge(server, name="embeddings", model="small")]
        path = write_suite(tmp_path, tests, targets=targets)
        found = results(run(path, "--mode", "record"))
        assert results(run(path, "--mode", "replay")) == found
        asked = {request.path: request.body["input"] for request in server.requests}
        assert (len(server.requests), set(asked)) == (4, {"/v1/embeddings"})
    assert ["the cat sat", "the cat"] in [request.body["input"] for request in server.requests]

    assert found.pop("b a")["score"] == 1.0
    for output, (score, outcome) in outputs.items():
        assert found[output]["score"] == pytest.approx(score, abs=1e-4)
        assert found[output]["outcome"] == outcome


def test_what_a_programs_variables_stand_for_is_nowhere_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVAL_GRADER_CODE", "zYx9876543210abcQ")
    assertion = program(
        tmp_path,
        "import os\nvalue = os.environ['CODE']\nsys.stderr.write(value)\n"
        "print(json.dumps({'score': float(value == 'zYx' + '9876543210abcQ'), 'details': value}))",
    )
    env = {"CODE": "${{ EVAL_GRADER_CODE }}"}
    found = graded(tmp_path, "out", {**assertion, "env": env})

    assert (found["score"], found["details"]["details"]) == (1.0, "[redacted]")
    (plan,) = tmp_path.rglob("cases-00000.jsonl.zst")
    assert (
        b"9876543210abcQ"
        not in zstandard.ZstdDecompressor().stream_reader(plan.read_bytes()).read()
    )


def test_variables_in_what_a_program_is_told_stay_references_in_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVAL_BOUND", "0.75")
    monkeypatch.setenv("EVAL_WORD", "zYx-plain-word")
    assertion = program(
        tmp_path,
        "config = json.load(sys.stdin)['config']\n"
        "sound = sys.argv[1:] == ['zYx-plain' + '-word'] and config['rules'] == ['at 0.75']\n"
        "sound = sound and config['limit'] == '0.75'\n"
        "print(json.dumps({'score': float(sound)}))",
    )
    command = [*assertion["command"], "${{ EVAL_WORD }}"]
    config = {"rules": ["at ${{ EVAL_BOUND }}"]}
    own = {"command": command, "config": config, "limit": "${{ EVAL_BOUND }}"}
    grade = graded(tmp_path, "out", {**assertion, **own})

    assert grade["score"] == 1.0
    (plan,) = tmp_path.rglob("cases-00000.jsonl.zst")
    stored = zstandard.ZstdDecompressor().stream_reader(plan.read_bytes()).read()
    assert b"${{ EVAL_WORD }}" in stored
    assert b"at ${{ EVAL_BOUND }}" in stored
    assert b"zYx-plain-word" not in stored


def test_a_secret_that_stands_in_a_programs_variables_is_refused(tmp_path: Path) -> None:
    assertion = program(tmp_path, "print(1)") | {"env": {"MODE": "fast", "API_KEY": "sk-123456"}}
    path = write_suite(tmp_path, [given("x", assertion)])
    ended = evalcore("run", path.name, cwd=tmp_path, store=tmp_path / "store")

    assert ended.code == 2
    assert "tests[0].assertions[0]" in ended.err
    assert "'env.API_KEY' holds a secret as it is" in ended.err
    assert "${{ API_KEY }}" in ended.err
    assert "sk-123456" not in ended.err
    assert not (tmp_path / "store").exists()
