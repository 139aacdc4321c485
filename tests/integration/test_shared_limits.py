"""Limits over all processes and all attempts of a run, judged by the model server's own counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from evalcore.execution.shared import EARLIER, decode_limits
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, list_runs, open_run
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import until
from tests.support.shell import environment, evalcore

PROGRAM = (sys.executable, "-c", "from evalcore.cli.main import main; main()")


def write_suite(folder: Path, url: str, *, items: int, limits: dict[str, Any]) -> Path:
    target = {"name": "m", "provider": "openai", "model": "tiny", "base_url": url, "api_key": "k"}
    suite = {
        "targets": [target],
        "execution": {"target": "m"},
        "evalcore": {"limits": limits},
        "assertions": [{"type": "contains", "value": "word"}],
        "tests": [{"id": f"t{item}", "input": f"word {item}"} for item in range(items)],
    }
    path = folder / "limits.eval.yaml"
    path.write_text(json.dumps(suite), "utf-8")
    return path


def billed(server: ModelServer) -> int:
    stats = server.stats()
    return stats.input_tokens + stats.output_tokens


def only_run(folder: Path) -> StoredRun:
    store = LocalStore(folder / "store")
    # A run that was killed before it was planned has executed nothing and cannot be resumed.
    (manifest,) = (manifest for manifest in list_runs(store) if manifest.is_planned)
    return open_run(store, manifest.suite, manifest.id)


@contextmanager
def command(*arguments: str, folder: Path, read: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """Give a running `evalcore`, in a group of its own, dead at the end; `read`: outputs too."""
    # A report that goes into a pipe without a reader would keep the process from ending.
    output = subprocess.PIPE if read else subprocess.DEVNULL
    process = subprocess.Popen(
        [*PROGRAM, *arguments, "--store", str(folder / "store")],
        cwd=folder,
        env=environment(),
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def interrupt(process: subprocess.Popen[bytes], how: signal.Signals, after_s: float) -> bool:
    """Interrupt a process, with its workers, after a while; say whether it had ended before."""
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, how)
        process.wait(60)
        return False
    return True


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("how", "workers"),
    [
        pytest.param(signal.SIGINT, (), id="interrupt"),
        pytest.param(signal.SIGKILL, ("--workers", "2"), id="kill-two-workers"),
    ],
)
def test_no_number_of_deaths_makes_a_run_spend_more_than_its_budget(
    tmp_path: Path, how: signal.Signals, workers: tuple[str, ...]
) -> None:
    random = Random(f"{how}{workers}")
    with model_server(latency_s=0.05, output_tokens=15) as server:
        limits = {"max_tokens": 3_000, "concurrency": 4}
        suite = write_suite(tmp_path, server.base_url, items=300, limits=limits)
        arguments = ["run", "--json", *workers, str(suite)]
        for _ in range(3):
            with command(*arguments, folder=tmp_path) as process:
                if interrupt(process, how, random.uniform(0.5, 1.3)):
                    break
            if any(run.is_planned for run in list_runs(LocalStore(tmp_path / "store"))):
                resumed = only_run(tmp_path).run_id
                arguments = ["run", "--json", *workers, "--resume", resumed]
        ended = evalcore(*arguments, store=tmp_path / "store", cwd=tmp_path)
        used = billed(server)
    budget = ended.report["run"]["budget"]
    assert used <= budget["billed"]["tokens"] + budget["unsettled"]["tokens"] <= 3_000
    assert ended.report["counts"]["error"] == 0


@pytest.mark.slow
def test_an_interrupted_run_knows_what_its_last_calls_cost(tmp_path: Path) -> None:
    with model_server(output_tokens=15, held_after=12) as server:
        suite = write_suite(
            tmp_path,
            server.base_url,
            items=100,
            limits={"max_tokens": 100_000, "concurrency": 8},
        )
        with command("run", str(suite), folder=tmp_path, read=True) as process:
            until(lambda: server.stats().requests >= 12 + 8, process)
            process.send_signal(signal.SIGINT)
            server.held_after = None
            assert process.wait(60) == 4
        run = only_run(tmp_path)
        state = decode_limits(run.store.get(run.keys.limits).data, run.keys.limits)
        assert state.confirmed.tokens == billed(server) > 0
        assert state.unsettled.tokens == 0
        assert list(state.blocks) == [EARLIER]


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_budget_that_one_process_needs_suffices_for_two(tmp_path: Path) -> None:
    with model_server(latency_s=0.02, output_tokens=15) as server:
        limits = {"max_tokens": 20_000, "concurrency": 8}
        suite = write_suite(tmp_path, server.base_url, items=400, limits=limits)
        ended = evalcore("run", "--json", "--workers", "2", suite, store=tmp_path, cwd=tmp_path)
        assert billed(server) < 8_000
    assert ended.report["counts"]["passed"] == 400
    assert ended.code == 0


def test_a_run_that_cannot_note_what_it_spends_stops_and_goes_on_later(tmp_path: Path) -> None:
    with model_server(output_tokens=15, held_after=5) as server:
        limits = {"max_tokens": 50_000, "concurrency": 2}
        suite = write_suite(tmp_path, server.base_url, items=60, limits=limits)
        store = tmp_path / "store"
        with command("run", str(suite), folder=tmp_path, read=True) as process:
            until(lambda: server.stats().requests >= 5 + 2, process)
            key = only_run(tmp_path).keys.limits
            (store / key).rename(tmp_path / "limits")
            # It ends although two calls are not answered.
            assert process.wait(60) == 4
            assert process.stderr is not None
            assert b"cannot be noted" in process.stderr.read()
        (tmp_path / "limits").rename(store / key)
        server.held_after = None
        run = only_run(tmp_path).run_id
        ended = evalcore("run", "--json", "--resume", run, store=store, cwd=tmp_path)
    assert ended.report["counts"]["passed"] == 60


@pytest.mark.slow
@pytest.mark.multiprocess
def test_processes_share_a_providers_rate(tmp_path: Path) -> None:
    with model_server(latency_s=0.01) as server:
        limits = {"providers": {"m": {"requests_per_minute": 240}}, "concurrency": 4}
        suite = write_suite(tmp_path, server.base_url, items=24, limits=limits)
        begun = time.monotonic()
        ended = evalcore("run", "--json", "--workers", "3", suite, store=tmp_path, cwd=tmp_path)
        times = [seen.at for seen in server.requests]
    assert ended.report["counts"]["passed"] == 24
    # Four calls a second, and one with which each process begins. A call may arrive late, as many
    # do together where a process gets no time, but none before it may be made.
    for number, at in enumerate(sorted(times), start=1):
        assert number <= 4 * (at - begun) + 3 + 1


@pytest.mark.slow
@pytest.mark.multiprocess
def test_workers_together_make_no_more_calls_at_once_than_a_provider_allows(
    tmp_path: Path,
) -> None:
    most = 3
    with model_server(latency_s=0.05) as server:
        limits = {"providers": {"m": {"max_concurrency": most}}, "concurrency": 4}
        suite = write_suite(tmp_path, server.base_url, items=8 * most, limits=limits)
        ended = evalcore("run", "--json", "--workers", "3", suite, store=tmp_path, cwd=tmp_path)
        assert server.stats().most_in_flight <= most
    assert ended.report["counts"]["passed"] == 8 * most
