"""Workflows that ask a real model server on loopback: what it saw, and what was kept of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.pipeline.finish import evaluate
from evalcore.pipeline.plan import PlanOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.workflow.events import Event, Snapshot
from evalcore.workflow.run_store import ObjectRunStore
from tests.support.model_server import (
    UNAUTHORIZED,
    ModelServer,
    by_rules,
    model_server,
)
from tests.support.model_wire import Answer

ARTICLE = """
souls:
  writer: {system_prompt: You write., provider: openai, model_name: big, temperature: 0.5,
           max_tokens: 50}
  editor: {system_prompt: You judge., provider: anthropic, model_name: claude-x}
blocks:
  plan: {type: llm, soul_ref: writer, prompt_template: "Plan: {topic}"}
  draft: {type: linear, soul_ref: writer, inputs: {outline: {from: plan.outline}}, depends: plan}
  review: {type: gate, soul_ref: editor, eval_key: draft, pass: publish, fail: reject}
  publish:
    type: dispatch
    exits:
      - {id: short, soul_ref: writer, task: "Shorten {draft}"}
      - {id: long, soul_ref: editor, task: "Extend {draft}"}
  reject: {type: code, code: "def main(data): return 'rejected'"}
  final: {type: synthesize, soul_ref: writer, input_block_ids: [publish.short, publish.long],
          depends: publish}
workflow: {name: article, entry: plan, transitions: [{from: draft, to: review}]}
eval:
  cases:
    - id: published
      inputs: {topic: tides}
      expected:
        draft: [{type: contains, value: Water bulges}, {type: tokens, threshold: 1000}]
        publish.short: [{type: equals, value: Short.}]
        final: [{type: equals, value: Whole.}]
"""
SAID = {
    "Plan: tides": '{"outline": ["moon", "sun"]}',
    '{"outline": ["moon", "sun"]}': "Water bulges.",
    "Decide whether": "PASS\nFine.",
    "Shorten": "Short.",
    "Extend": "Long.",
    "## publish.short\nShort.\n\n## publish.long\nLong.": "Whole.",
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(script=by_rules(SAID)) as running:
        yield running


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
    if "server" in request.fixturenames:
        url = request.getfixturevalue("server").base_url
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_API_KEY", f"key-of-{name.lower()}")
            monkeypatch.setenv(f"{name}_BASE_URL", url)


class Evaluated:
    """A run that has ended, in its store."""

    def __init__(self, folder: Path, text: str, mode: str = "live", **options: Any) -> None:
        import os

        path = folder / "suite.eval.yaml"
        path.write_text(dedent(text), "utf-8")
        suite = load_suite(path, LoadOptions(environment=dict(os.environ), **options))
        store = LocalStore(folder / "store")
        with evaluate(suite, store, ExecuteOptions(), PlanOptions(mode=mode)) as view:
            self.run: StoredRun = view.run
            self.report: dict[str, Any] = json.loads(view.json())

    @property
    def item(self) -> dict[str, Any]:
        (case,) = self.report["cases"]
        (item,) = case["items"]
        found: dict[str, Any] = item
        return found

    @property
    def message(self) -> str:
        return str(self.item["error"]["message"])

    def events(self, item: int = 0) -> tuple[Event, ...]:
        return asyncio.run(self._events(item).load_events())

    def snapshot(self, item: int = 0) -> Snapshot:
        found = asyncio.run(self._events(item).load_snapshot())
        assert found is not None
        return found

    def _events(self, item: int) -> ObjectRunStore:
        return ObjectRunStore(self.run.store, self.run.keys.item_events(item))


def test_every_kind_of_model_block_works_together(tmp_path: Path, server: ModelServer) -> None:
    ran = Evaluated(tmp_path, ARTICLE)

    assert ran.item["outcome"] == "passed", ran.item
    assert [(seen.path, seen.body["model"]) for seen in server.requests][:3] == [
        ("/v1/chat/completions", "big"),
        ("/v1/chat/completions", "big"),
        ("/v1/messages", "claude-x"),
    ]
    first = server.requests[0]
    assert first.headers["Authorization"] == "Bearer key-of-openai"
    assert first.body["messages"] == [
        {"role": "system", "content": "You write."},
        {"role": "user", "content": "Plan: tides"},
    ]
    assert (first.body["temperature"], first.body["max_tokens"]) == (0.5, 50)


def test_its_events_and_snapshot_stand_in_the_run(tmp_path: Path, server: ModelServer) -> None:
    ran = Evaluated(tmp_path, ARTICLE)

    events = ran.events()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    calls = [event for event in events if event.type == "model_call"]
    assert sorted(event.block or "" for event in calls) == [
        *("draft", "final", "plan", "publish.long", "publish.short", "review")
    ]
    assert all(event.data["latency_ms"] > 0 for event in calls)
    assert calls[0].data["output_tokens"] == 3
    routes = [(e.block, e.data.get("to")) for e in events if e.type == "route_taken"]
    assert routes[2] == ("review", "publish")
    snapshot = ran.snapshot()
    assert snapshot.state == "completed"
    assert snapshot.outputs["final"] == "Whole."
    assert snapshot.values["outputs"]["publish"] == {"short": "Short.", "long": "Long."}
    everything = json.dumps([event._asdict() for event in events])
    assert "key-of-openai" not in everything


def test_a_run_is_recorded_and_replayed_without_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_server(script=by_rules(SAID)) as server:
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_API_KEY", "k")
            monkeypatch.setenv(f"{name}_BASE_URL", server.base_url)
        recorded = Evaluated(tmp_path, ARTICLE, mode="record")
        asked = server.stats().requests
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.delenv(f"{name}_API_KEY")
        monkeypatch.delenv(f"{name}_BASE_URL")
    replayed = Evaluated(tmp_path, ARTICLE, mode="replay", secrets_required=False)

    assert asked == 6
    assert replayed.report["cases"] == recorded.report["cases"]


FAILING = """
souls: {s: {provider: openai, model_name: m}}
blocks:
  a: {type: llm, soul_ref: s, prompt_template: "Say x", %s}
  b: {type: llm, soul_ref: s, prompt_template: "{a.error.message}"}
workflow: {entry: a, transitions: [{from: a, to: null}]}
eval: {cases: [{id: c, expected: {%s: [{type: contains, value: %s}]}}]}
"""


def test_a_provider_that_refuses_is_the_items_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_server(script=lambda _: UNAUTHORIZED) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "wrong-key")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        ran = Evaluated(tmp_path, FAILING % ("", "a", "x"))

    assert ran.item["status"] == "error"
    assert ran.message.startswith("block 'a': ")
    assert "401" in ran.message
    assert ran.snapshot().state == "failed"
    (call,) = [event for event in ran.events() if event.type == "model_call"]
    assert "invalid key" in call.data["error"]


@pytest.mark.parametrize(
    ("provider", "name"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")]
)
def test_a_missing_key_has_its_own_message(tmp_path: Path, provider: str, name: str) -> None:
    text = (FAILING % ("", "a", "x")).replace("provider: openai", f"provider: {provider}")
    ran = Evaluated(tmp_path, text)

    assert f"block 'a': {provider} at api.{provider}.com: no key: " in ran.message
    assert f"set the environment variable {name}" in ran.message


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ("{name: fake, provider: mock, response: from the file}", "from the file"),
        ("{name: fake, provider: echo}", "On tides"),
        ("{name: fake, provider: openai, model: own, base_url: '%s', api_key: k}", "own said"),
    ],
    ids=["mock", "echo", "openai"],
)
def test_a_soul_may_name_an_entry_of_the_targets_file(
    tmp_path: Path, entry: str, answer: str
) -> None:
    text = f"""
        souls: {{s: {{provider: fake}}}}
        blocks: {{a: {{type: llm, soul_ref: s, prompt_template: "On {{topic}}"}}}}
        eval:
          cases:
            - id: c
              inputs: {{topic: tides}}
              expected: {{a: [{{type: equals, value: {answer}}}]}}
        """
    with model_server(script=lambda question: f"{question.model} said") as server:
        written = entry % server.base_url if "%s" in entry else entry
        (tmp_path / "targets.yaml").write_text(f"targets: [{written}]\n")
        ran = Evaluated(tmp_path, text)

    assert ran.item["outcome"] == "passed", ran.item


def test_the_key_of_a_souls_entry_may_be_any_variable_that_a_suite_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVAL_GATEWAY_KEY", "key-of-the-gateway")
    text = """
        souls: {s: {provider: gateway}}
        blocks: {a: {type: llm, soul_ref: s, prompt_template: "Say x"}}
        eval: {cases: [{id: c, expected: {a: [{type: equals, value: x}]}}]}
        """
    with model_server(script=lambda _: "x") as server:
        options = f"model: m, base_url: '{server.base_url}', api_key: '${{{{ EVAL_GATEWAY_KEY }}}}'"
        written = f"targets: [{{name: gateway, provider: openai, {options}}}]\n"
        (tmp_path / "targets.yaml").write_text(written)
        ran = Evaluated(tmp_path, text)

    assert ran.item["outcome"] == "passed", ran.item
    assert server.requests[0].headers["Authorization"] == "Bearer key-of-the-gateway"


def test_a_variant_changes_every_souls_model(tmp_path: Path, server: ModelServer) -> None:
    section = """
evalcore:
  variants:
    - {id: base}
    - {id: small, config: {model: tiny, system_prompt: Be kind., souls: {writer: {max_tokens: 9}}}}
"""
    Evaluated(tmp_path, ARTICLE + section)

    models = [seen.body["model"] for seen in server.requests]
    assert (models.count("tiny"), models.count("big"), models.count("claude-x")) == (6, 4, 2)
    tiny = next(
        seen.body
        for seen in server.requests
        if seen.body["model"] == "tiny" and seen.path.endswith("completions")
    )
    assert tiny["messages"][0]["content"] == "Be kind."
    assert (tiny["max_tokens"], tiny["temperature"]) == (9, 0.5)


def test_an_http_block_is_one_recorded_request(tmp_path: Path, server: ModelServer) -> None:
    text = f"""
        blocks:
          send:
            type: http
            method: POST
            url: "{server.url}/echo?q={{topic}}"
            headers: {{X-Topic: "{{topic}}", Authorization: "Bearer {{key}}"}}
            body: {{topic: "{{topic}}", list: ["{{n}}"]}}
          read: {{type: llm, soul_ref: s, prompt_template: "{{send.method}}", depends: send}}
        souls: {{s: {{provider: openai, model_name: m}}}}
        workflow: {{entry: send}}
        eval:
          cases:
            - id: c
              inputs: {{topic: "high & low", n: 3, key: sk-very-secret}}
              expected:
                send: [{{type: is-json}}, {{type: latency, threshold: 60000}}]
                read: [{{type: equals, value: POST}}]
        """
    ran = Evaluated(tmp_path, text)

    assert ran.item["outcome"] == "passed", ran.item
    seen = server.requests[0]
    assert seen.path in ("/echo?q=high%20%26%20low", "/echo?q=high+%26+low")
    assert seen.body == {"topic": "high & low", "list": [3]}
    assert (seen.headers["X-Topic"], seen.headers["Authorization"]) == (
        "high & low",
        "Bearer sk-very-secret",
    )
    (call,) = [event for event in ran.events() if event.type == "http_call"]
    assert call.block == "send"


def test_a_reference_that_comes_with_data_reads_no_variable(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVAL_KEY", "key-of-the-suite")
    text = f"""
        blocks:
          send:
            type: http
            method: POST
            url: "{{address}}&own=${{{{ EVAL_KEY }}}}"
            headers: {{X-Topic: "{{topic}}", X-Note: "$${{{{ EVAL_KEY }}}}", X-Key: "{{topic}}"}}
            body: {{topic: "{{topic}}", escaped: "$${{{{ EVAL_KEY }}}}"}}
        workflow: {{entry: send}}
        eval:
          cases:
            - id: c
              inputs:
                address: "{server.url}/echo?x=${{{{ EVAL_KEY }}}}"
                topic: "${{{{ EVAL_KEY }}}}"
              expected: {{send: [{{type: latency, threshold: 60000}}]}}
        """
    ran = Evaluated(tmp_path, text)

    assert ran.item["outcome"] == "passed", ran.item
    (seen,) = server.requests
    assert seen.path.count("key-of-the-suite") == 1
    assert seen.path.endswith("&own=key-of-the-suite")
    written = "${{ EVAL_KEY }}"
    assert seen.body == {"topic": written, "escaped": written}
    assert {seen.headers[name] for name in ("X-Topic", "X-Note", "X-Key")} == {written}


def test_measures_of_a_workflow_are_sums_over_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        souls: {s: {provider: openai, model_name: m}}
        blocks:
          a: {type: llm, soul_ref: s, prompt_template: one}
          b: {type: code, depends: a, code: "def main(data): return 1"}
          c: {type: llm, soul_ref: s, prompt_template: two, depends: b}
        workflow: {entry: a}
        eval:
          cases:
            - id: c
              expected:
                a: [{type: tokens, threshold: 15}]
                b: [{type: not-tokens, threshold: 1}]
                c: [{type: tokens, threshold: 14}]
        """
    script = lambda _: Answer("x", input_tokens=10, output_tokens=5)  # noqa: E731
    with model_server(script=script) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        ran = Evaluated(tmp_path, text)

    metrics = ran.item["metrics"]
    assert (metrics["input_tokens"], metrics["output_tokens"]) == (20, 10)
    outcomes = {found["block"]: found["outcome"] for found in ran.item["assertions"]}
    assert outcomes == {"a": "passed", "b": "blocked", "c": "failed"}
