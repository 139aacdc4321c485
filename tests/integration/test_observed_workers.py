"""Spans, logs and `runs watch` of runs that several processes or Prefect's tasks execute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.test_watch import documents, wait_for_run, write_suite
from tests.support.model_server import model_server
from tests.support.otlp_receiver import Receiver, otlp_receiver
from tests.support.prefect_server import PrefectServer
from tests.support.shell import evalcore, start

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
]

CASES = 120


def assert_one_tree(receiver: Receiver, items: int) -> None:
    """Check that there is one trace of run → shards → items → calls, each item once."""
    (run,) = receiver.named("run ")
    shards, each, chats = (receiver.named(name) for name in ("shard ", "item ", "chat "))
    assert {span.trace_id for span in receiver.spans} == {run.trace_id}
    assert run.parent_id == ""
    assert {span.parent_id for span in shards} == {run.span_id}
    assert {span.parent_id for span in each} == {span.span_id for span in shards}
    assert sorted(span.parent_id for span in chats) == sorted(span.span_id for span in each)
    assert sorted(span.attributes["evalcore.item"] for span in each) == list(range(items))


@pytest.mark.extended
@pytest.mark.parametrize("flags", [("--workers", "2"), ("--prefect",)], ids=lambda flags: flags[0])
def test_a_run_is_one_tree_and_watched_to_its_decision_whoever_executes_it(
    running_prefect: PrefectServer, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    store, out = str(tmp_path / "store"), tmp_path / "out"
    with otlp_receiver() as receiver, model_server(latency_s=0.2) as server:
        suite = write_suite(tmp_path, server.base_url, CASES)
        env = {
            "EVALCORE_OTEL": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "PREFECT_API_URL": running_prefect.url,
            "PREFECT_HOME": str(running_prefect.home),
            "EVALCORE_LOG": "json",
        }
        arguments = ("run", str(suite), *flags, "--concurrency", "4")
        run = start(*arguments, store=store, cwd=tmp_path, out=out, env=env)
        watching = ("runs", "watch", wait_for_run(store), "--json", "--interval", "0.1")
        watched = evalcore(*watching, store=store, forked=False)
        assert run.wait(90) == watched.code == 1, out.read_text()
    told = documents(watched.out)
    done = [one["items"]["done"] for one in told]
    assert (done[0], done[-1]) == (0, CASES)
    assert done == sorted(done)
    assert told[-1]["decision"] == "fail"
    assert_one_tree(receiver, CASES)
    logged = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    events = [line["event"] for line in logged]
    shards = [line["shard"] for line in logged if line["event"] == "shard.committed"]
    assert sorted(shards) == list(range(told[-1]["shards"]["total"]))
    assert (events.count("run.ended"), events[-1]) == (1, "run.ended")
