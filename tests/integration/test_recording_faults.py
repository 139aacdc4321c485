"""A store that fails while a run is recorded: the replay equals the run, and no item is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from evalcore.formats.registry import load_suite
from evalcore.pipeline.finish import evaluate
from evalcore.pipeline.plan import PlanOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore
from tests.support.model_server import ModelServer, model_server
from tests.support.servers import BUCKET, Fault, FaultyProxy, S3Server, faulty_proxy

pytestmark = [pytest.mark.s3, pytest.mark.slow]

ITEMS = 30
Rule = Callable[[str, str], Fault | None]

LOST_AS_500 = Fault(500, loses_answer=True)
LOST = Fault(loses_answer=True)
BUSY = Fault(503, body=b"<Error><Code>SlowDown</Code></Error>")


@pytest.fixture
def model() -> Iterator[ModelServer]:
    numbers = count()
    with model_server(script=lambda _: f"answer {next(numbers)}", latency_s=0.02) as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.url) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


@pytest.fixture
def store(proxy: FaultyProxy) -> ObjectStore:
    return open_store(f"s3://{BUCKET}/{uuid4().hex}")


@pytest.fixture
def suite(tmp_path: Path, model: ModelServer) -> Path:
    """A suite whose answers are all different: half of them pass."""
    tests = [
        {
            "id": f"case-{number}",
            "input": f"question {number}",
            "assertions": [{"type": "regex", "value": "[02468]$"}],
        }
        for number in range(ITEMS)
    ]
    target = {"name": "m", "provider": "openai", "model": "small", "api_key": "none"}
    whole = {
        "name": "recorded",
        "execution": {"target": "m"},
        "targets": [{**target, "base_url": model.base_url}],
        "tests": tests,
    }
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(whole))
    return path


def report(suite: Path, store: ObjectStore, mode: str) -> str:
    with evaluate(load_suite(suite), store, ExecuteOptions(), PlanOptions(mode=mode)) as view:
        return view.json().decode()


def same(text: str) -> dict[str, Any]:
    """Return a report without the block `run`: in a replay all of it is as it was recorded."""
    whole: dict[str, Any] = json.loads(text)
    del whole["run"]
    return whole


def first_of_each(fault: Fault, *kinds: str) -> Rule:
    """The fault meets the first write to each key of these kinds."""
    met: set[str] = set()

    def rule(method: str, path: str) -> Fault | None:
        key = path.partition("?")[0]
        if method != "PUT" or key in met or not any(kind in key for kind in kinds):
            return None
        met.add(key)
        return fault

    return rule


def for_a_while(kind: str, fault: Fault, seconds: float) -> Rule:
    """The fault meets all requests of that kind, from the first one on, for that long."""
    begun: list[float] = []
    lock = threading.Lock()

    def rule(_: str, path: str) -> Fault | None:
        if kind not in path:
            return None
        with lock:
            begun[:] = begun or [time.monotonic()]
        return fault if time.monotonic() - begun[0] < seconds else None

    return rule


OTHERS = ("/claims/", "/results/", "/plan/", "manifest.json", "report.json")
RULES: dict[str, Callable[[], Rule]] = {
    "each recording is taken and answered with 500": lambda: first_of_each(
        LOST_AS_500, "/recordings/"
    ),
    "each recording is taken and the connection ends": lambda: first_of_each(LOST, "/recordings/"),
    "recordings fail for a second": lambda: for_a_while("/recordings/", BUSY, 1.0),
    "each other object is taken and the connection ends": lambda: first_of_each(LOST, *OTHERS),
}


@pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES.keys())
def test_a_replay_equals_the_run_that_was_recorded_through_faults(
    proxy: FaultyProxy, store: ObjectStore, suite: Path, make_rule: Callable[[], Rule]
) -> None:
    proxy.rule = make_rule()
    recorded = report(suite, store, "record")
    assert json.loads(recorded)["counts"]["error"] == 0
    proxy.rule = lambda _method, _path: None
    assert same(report(suite, store, "replay")) == same(recorded)
