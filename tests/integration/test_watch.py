"""`evalcore runs watch`: a run that another process executes, followed by its store alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.fork_server import PROGRAM
from tests.support.model_server import UNAUTHORIZED, model_server
from tests.support.processes import until
from tests.support.shell import ROOT, environment, evalcore, start

pytestmark = [pytest.mark.multiprocess]

SUITE = """\
name: watched
targets: [{{name: model, provider: openai, model: m, base_url: '{url}', api_key: none}}]
execution: {{target: model}}
assertions: [{{type: contains, value: odd}}]
tests:
{tests}
"""


def write_suite(folder: Path, url: str, cases: int) -> Path:
    path = folder / "watched.eval.yaml"
    words = ("even", "odd")
    tests = "\n".join(f"  - {{id: c{n}, input: {words[n % 2]}}}" for n in range(cases))
    path.write_text(SUITE.format(url=url, tests=tests))
    return path


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def run_of(store: str) -> str:
    return next(iter(list_runs(open_store(store)))).id


def wait_for_run(store: str) -> str:
    """Return the id of the run that is being started there."""
    while True:
        found = next(iter(list_runs(open_store(store))), None)
        if found is not None:
            return found.id


@pytest.fixture
def ended_run(tmp_path: Path) -> str:
    with model_server(failures=[UNAUTHORIZED]) as server:
        suite = write_suite(tmp_path, server.base_url, 7)
        evalcore("run", suite, "--concurrency", "1", store=tmp_path / "store")
    return run_of(str(tmp_path / "store"))


def test_a_completed_run_is_told_in_one_line_with_its_decision(
    tmp_path: Path, ended_run: str
) -> None:
    ended = evalcore("runs", "watch", ended_run, "--json", store=tmp_path / "store")
    (told,) = documents(ended.out)
    assert ended.code == 1
    assert (told["state"], told["decision"]) == ("completed", "fail")
    assert told["shards"] == {"total": 4, "done": 4, "claimed": 0}
    counts = {"total": 7, "done": 7, "passed": 3, "failed": 3, "errors": 1}
    assert counts.items() <= told["items"].items()
    assert told["left_s"] is None


def test_people_read_the_same(tmp_path: Path, ended_run: str) -> None:
    ended = evalcore("runs", "watch", ended_run, store=tmp_path / "store")
    assert "watched: 7/7 items, 3 passed, 3 failed, 1 error, shards 4/4 done" in ended.out


@contextmanager
def watching(store: str) -> Iterator[subprocess.Popen[str]]:
    """Watch the run that is being started there, in a process that does not outlive the test."""
    watch = subprocess.Popen(
        [PROGRAM, "runs", "watch", wait_for_run(store), "--json", "--interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(store),
    )
    try:
        yield watch
    finally:
        watch.kill()
        watch.communicate()


def next_document(watch: subprocess.Popen[str]) -> dict[str, Any]:
    assert watch.stdout is not None
    document: dict[str, Any] = json.loads(watch.stdout.readline())
    return document


def test_a_running_run_is_followed_to_its_decision(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with model_server(held_after=100) as server:
        suite = write_suite(tmp_path, server.base_url, 300)
        run = start(
            *("run", suite, "--concurrency", "4"), store=store, cwd=ROOT, out=tmp_path / "out"
        )
        with watching(store) as watch:
            told = [next_document(watch)]
            server.held_after = 200
            while told[-1]["items"]["done"] == told[0]["items"]["done"]:
                told.append(next_document(watch))
            assert {one["state"] for one in told} == {"running"}
            assert told[-1]["items_per_s"]
            server.held_after = None
            out, _ = watch.communicate(timeout=120)
        assert run.wait(120) == watch.returncode == 1
    told += documents(out)
    done = [one["items"]["done"] for one in told]
    assert done == sorted(done)
    assert done[-1] == 300
    assert told[-1]["items"]["passed"] == 150


def test_an_interrupt_ends_the_watching_and_not_the_run(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with model_server(held_after=5) as server:
        suite = write_suite(tmp_path, server.base_url, 30)
        run = start(
            *("run", suite, "--concurrency", "1"), store=store, cwd=ROOT, out=tmp_path / "out"
        )
        with watching(store) as watch:
            next_document(watch)
            watch.send_signal(signal.SIGINT)
            _, said = watch.communicate(timeout=120)
        assert watch.returncode == 4
        assert "the run goes on" in said
        server.held_after = None
        assert run.wait(120) == 1


def test_a_stopped_run_ends_the_watching_with_4(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with model_server(held_after=5) as server:
        suite = write_suite(tmp_path, server.base_url, 300)
        run = start(
            *("run", suite, "--concurrency", "2"), store=store, cwd=ROOT, out=tmp_path / "out"
        )
        with watching(store) as watch:
            until(lambda: server.stats().requests >= 6, run)
            os.killpg(run.pid, signal.SIGINT)
            server.held_after = None
            out, _ = watch.communicate(timeout=120)
        run.wait(60)
    assert watch.returncode == 4
    assert documents(out)[-1]["state"] == "cancelled"


def test_an_unknown_run_is_a_usage_error(tmp_path: Path) -> None:
    assert evalcore("runs", "watch", "nonsense", store=tmp_path).code == 2
