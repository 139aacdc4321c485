"""A store that stays away while a run is recorded: the run stops, a resume heals it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import StoreError
from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import evaluate, finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.recording import recorder as recorder_module
from evalcore.storage.local import LocalStore
from tests.support.model_server import ModelServer, model_server
from tests.support.model_wire import Question

ITEMS = 40
MODEL = {"name": "m", "provider": "openai", "model": "small", "api_key": "none"}
ANSWERED = {"type": "regex", "value": "^answer"}
# A check turns what its judge raises into a result of its own.
JUDGED = {"type": "llm-grader", "prompt": "Is it good?", "target": "m"}
SUITES: dict[str, dict[str, Any]] = {
    "a target": {"execution": {"target": "m"}, "targets": [MODEL], "check": ANSWERED},
    "a judge": {
        "execution": {"target": "e"},
        "targets": [MODEL, {"name": "e", "provider": "echo"}],
        "check": JUDGED,
    },
}


class Outage(LocalStore):
    """Refuses recordings from the `after`-th on until it is back."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__(folder)
        self._writes = count()
        self._after = after
        self.away = True

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        if key.startswith("recordings/") and self.away and next(self._writes) >= self._after:
            raise StoreError(f"{key}: the server answered 503")
        return super().put_if_absent(key, data)


def answer(question: Question, number: int) -> str:
    if "Is it good?" in question.text:
        return json.dumps({"score": 1.0, "assertions": [], "reasoning": f"answer {number}"})
    return f"answer {number}"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    numbers = count()
    with model_server(
        script=lambda question: answer(question, next(numbers)), latency_s=0.01
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_STORE_RETRIES_S", (0.0,))


def write_suite(folder: Path, asks: dict[str, Any], model: ModelServer) -> Path:
    targets = [{"base_url": model.base_url, **target} for target in asks["targets"][:1]]
    whole = {
        "name": "outage",
        "execution": asks["execution"],
        "targets": [*targets, *asks["targets"][1:]],
        "tests": [
            {"id": f"c{n}", "input": f"q{n}", "assertions": [asks["check"]]} for n in range(ITEMS)
        ],
    }
    path = folder / "suite.json"
    path.write_text(json.dumps(whole))
    return path


def without_run(text: bytes) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(text)
    del whole["run"]
    return whole


@pytest.mark.parametrize("asks", SUITES.values(), ids=SUITES.keys())
def test_a_run_whose_recordings_are_refused_stops_and_its_resume_loses_nothing(
    tmp_path: Path, model: ModelServer, asks: dict[str, Any]
) -> None:
    store = Outage(tmp_path / "store", after=10)
    suite = load_suite(write_suite(tmp_path, asks, model))
    run = plan_run(suite, store, PlanOptions(mode="record"), now=datetime.now(UTC))
    with pytest.raises(StoreError, match=f"answered 503.*run --resume {run.run_id}"):
        execute_run(run)
    store.away = False
    execute_run(run)
    with finish_run(run, now=datetime.now(UTC)) as view:
        recorded = view.json()
    assert json.loads(recorded)["counts"]["passed"] == ITEMS
    asked = model.stats().requests
    assert asked < 2 * ITEMS  # what was recorded before is not asked again
    with evaluate(suite, store, plan_options=PlanOptions(mode="replay")) as view:
        assert without_run(view.json()) == without_run(recorded)
    assert model.stats().requests == asked
