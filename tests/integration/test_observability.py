"""What a run tells while it goes on: spans to a real receiver, log lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import (
    RATE_LIMITED,
    SERVER_ERROR,
    UNAUTHORIZED,
    Failure,
    model_server,
)
from tests.support.model_wire import Question
from tests.support.otlp_receiver import Receiver, otlp_receiver
from tests.support.shell import environment, evalcore

pytestmark = [pytest.mark.multiprocess]

SECRET = "sk-4f7Qm2xT9vLk81ZsWc3N"
QUESTION = "What does the harbourmaster keep?"
SUITE = """\
name: told
targets:
  - {{name: model, provider: openai, model: gpt-4o-mini, base_url: '{url}', api_key: {secret},
      temperature: 0.5}}
execution: {{target: model}}
assertions: [{{type: contains, value: harbourmaster}}]
tests:
{tests}
"""
FIXTURES = """\
name: given
assertions: [{type: contains, value: Hello}]
tests:
  - {id: good, input: Hello?, fixtures: {output: Hello!}}
  - {id: bad, input: Hello?, fixtures: {output: Bye.}}
"""


def write_suite(folder: Path, url: str, cases: int = 3) -> Path:
    tests = "\n".join(f"  - {{id: case-{n}, input: '{QUESTION} {n}'}}" for n in range(cases))
    path = folder / "told.eval.yaml"
    path.write_text(SUITE.format(url=url, secret=SECRET, tests=tests))
    return path


def told(folder: Path, behaviour: dict[str, Any], **env: str) -> tuple[Receiver, str]:
    """Run three cases against a model; return what the receiver got, and standard error."""
    with otlp_receiver() as receiver, model_server(**behaviour) as server:
        suite = write_suite(folder, server.base_url)
        ended = evalcore(
            *("run", suite, "--concurrency", "1"),
            store=folder / "store",
            env={"EVALCORE_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, **env},
        )
    assert ended.code in {0, 1, 4}, ended.err
    return receiver, ended.err


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Receiver:
    failures = (None, RATE_LIMITED, None, UNAUTHORIZED)
    return told(tmp_path_factory.mktemp("calls"), {"failures": failures})[0]


def test_a_run_is_one_tree_of_run_shard_item_and_call(calls: Receiver) -> None:
    (run,) = calls.named("run ")
    shards, items, chats = calls.named("shard "), calls.named("item "), calls.named("chat ")
    assert {span.trace_id for span in calls.spans} == {run.trace_id}
    assert run.parent_id == ""
    assert {span.parent_id for span in shards} == {run.span_id}
    assert {span.parent_id for span in items} <= {span.span_id for span in shards}
    assert sorted(span.parent_id for span in chats) == sorted(span.span_id for span in items)
    assert len(items) == len(chats) == 3


def test_calls_follow_the_conventions_for_generative_ai(calls: Receiver) -> None:
    span = next(span for span in calls.named("chat ") if not span.is_error)
    assert span.name == "chat gpt-4o-mini"
    assert span.kind == 3  # client
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.request.temperature": 0.5,
        "server.address": "127.0.0.1",
    }
    assert expected.items() <= span.attributes.items()
    assert span.attributes["gen_ai.usage.input_tokens"] > 0
    assert span.attributes["gen_ai.usage.output_tokens"] > 0
    assert span.attributes["evalcore.cost_usd"] > 0
    assert span.ended_ns > span.began_ns


def test_a_retry_is_an_event_of_the_call(calls: Receiver) -> None:
    events = [
        event for span in calls.named("chat ") for event in span.events if event[0] == "retry"
    ]
    assert [event[1]["error.type"] for event in events] == ["429"]


def test_a_failed_call_and_its_item_are_errors(calls: Receiver) -> None:
    (call,) = [span for span in calls.named("chat ") if span.is_error]
    (item,) = [span for span in calls.named("item ") if span.is_error]
    assert call.parent_id == item.span_id
    assert call.attributes["error.type"] == "401"
    assert item.attributes["error.type"] == "authentication"
    assert item.attributes["evalcore.status"] == "error"


def test_the_run_tells_its_decision_and_counts(calls: Receiver) -> None:
    (run,) = calls.named("run ")
    assert run.attributes["evalcore.state"] == "completed"
    assert run.attributes["evalcore.decision"] == "fail"
    assert run.attributes["evalcore.items.error"] == 1


def test_contents_and_secrets_stay_here(calls: Receiver) -> None:
    assert QUESTION.encode() not in calls.raw
    assert SECRET.encode() not in calls.raw


def test_given_outputs_have_spans_without_calls(tmp_path: Path) -> None:
    suite = tmp_path / "given.eval.yaml"
    suite.write_text(FIXTURES)
    with otlp_receiver() as receiver:
        env = {"EVALCORE_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        evalcore("run", suite, store=tmp_path / "store", env=env)
    assert sorted(span.name for span in receiver.spans) == [
        *("item bad", "item good", "run given", "shard 0")
    ]
    assert receiver.resources[0]["service.name"] == "evalcore"


def test_the_variable_of_opentelemetry_switches_telemetry_off(tmp_path: Path) -> None:
    suite = tmp_path / "given.eval.yaml"
    suite.write_text(FIXTURES)
    with otlp_receiver() as receiver:
        off = {"EVALCORE_OTEL": "1", "OTEL_SDK_DISABLED": "true"}
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, **off}
        evalcore("run", suite, store=tmp_path / "store", env=env)
    assert receiver.spans == []


def test_a_receiver_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    suite = tmp_path / "given.eval.yaml"
    suite.write_text(FIXTURES)
    receiver = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    env = {"EVALCORE_OTEL": "1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1", **receiver}
    ended = evalcore("run", suite, "--json", store=tmp_path / "store", env=env)
    assert ended.report["counts"]["passed"] == 1
    assert ended.code == 1


@pytest.mark.parametrize(
    ("env", "code"),
    [({"EVALCORE_OTEL": "1"}, 2), ({}, 1)],
    ids=["asked for", "not asked for"],
)
def test_without_the_extra_only_who_asks_for_it_is_refused(
    tmp_path: Path, env: dict[str, str], code: int
) -> None:
    suite = tmp_path / "given.eval.yaml"
    suite.write_text(FIXTURES)
    store = tmp_path / "store"
    program = (
        "import sys; sys.modules['opentelemetry.exporter'] = None; "
        "from evalcore.cli.main import call; "
        f"sys.exit(call(['run', {str(suite)!r}, '--store', {str(store)!r}]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(**env),
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    if code == 2:
        assert "evalcore-pipeline[otel]" in ended.stderr
        assert list(store.glob("runs/*/*")) == []


def logged(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_logs_tell_shards_retries_refusals_and_errors_with_their_ids(tmp_path: Path) -> None:
    # Of each case: its second attempt may come before the first one of the next.
    failures = {"1": [RATE_LIMITED], "2": [SERVER_ERROR, UNAUTHORIZED]}

    def script(question: Question) -> str | Failure:
        left = failures.get(question.prompt[-1])
        return left.pop(0) if left else question.prompt

    with model_server(script=script) as server:
        suite = write_suite(tmp_path, server.base_url)
        arguments = ("run", suite, "--concurrency", "1", "--json", "--log-format", "json")
        ended = evalcore(*arguments, store=tmp_path / "store")
    lines = logged(ended.err)
    events = [(line["event"], line.get("shard"), line.get("item")) for line in lines]
    assert (events[0], events[-1]) == (("run.executing", None, None), ("run.ended", None, None))
    shards = [(name, n, None) for name in ("shard.begun", "shard.committed") for n in range(3)]
    calls = [("call.refused", None, 1), ("call.retried", None, 2), ("call.failed", None, 2)]
    assert set(events[1:-1]) == {*shards, *calls, ("item.error", 2, 2)}
    assert len(events) == len(set(events))
    assert {line["run"] for line in lines} == {ended.report["run"]["id"]}
    assert {line["suite"] for line in lines} == {"told"}
    assert [line["status"] for line in lines if str(line["event"]).startswith("call.")] == [
        *(429, 500, 401)
    ]
    assert lines[-1]["decision"] == "fail"
    assert SECRET not in ended.err


def test_text_logs_have_the_same_as_words(tmp_path: Path) -> None:
    suite = tmp_path / "given.eval.yaml"
    suite.write_text(FIXTURES)
    ended = evalcore("run", suite, store=tmp_path / "store", env={"EVALCORE_LOG": "text"})
    assert "shard.committed run=" in ended.err
    assert "suite=given shard=0 items=2" in ended.err


def test_an_exhausted_budget_is_told_once(tmp_path: Path) -> None:
    with model_server() as server:
        suite = write_suite(tmp_path, server.base_url, cases=6)
        text = suite.read_text() + "evalcore: {limits: {max_tokens: 60}}\n"
        suite.write_text(text)
        arguments = ("run", suite, "--concurrency", "1", "--log-format", "json")
        ended = evalcore(*arguments, store=tmp_path / "store")
    events = [line["event"] for line in logged(ended.err)]
    assert events.count("budget.reached") == 1


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"EVALCORE_LOG": "xml"}, "json, text or off"),
        ({"EVALCORE_LOG": "json:loud"}, "json:debug"),
        ({"EVALCORE_OTEL": "maybe"}, "true or false"),
    ],
    ids=["form", "level", "switch"],
)
def test_a_wrong_setting_says_what_would_work(
    tmp_path: Path, env: dict[str, str], said: str
) -> None:
    suite = tmp_path / "given.eval.yaml"
    suite.write_text(FIXTURES)
    ended = evalcore("run", suite, store=tmp_path / "store", env=env)
    assert ended.code == 2
    assert said in ended.err
