"""What a run waits for can be read while it waits."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from evalcore.execution.waits import Waits, waiting_text
from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.plan import plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.local import LocalStore
from tests.support.model_server import Failure, model_server


def test_the_calls_and_the_longest_wait_are_counted_by_what_they_wait_for() -> None:
    now = [0.0]
    waits = Waits(lambda: now[0])
    with waits.entered("openai rate limit"):
        now[0] = 38.0
        with waits.entered("openai rate limit"), waits.entered("budget"):
            assert waits.standing() == {"openai rate limit": (2, 38.0), "budget": (1, 0.0)}
            assert waiting_text(waits.standing()) == "waiting: openai rate limit, 2 calls, 38 s"
    assert waits.standing() == {}
    assert waiting_text({}) == ""


def test_a_call_that_a_provider_holds_back_is_told_while_it_waits(tmp_path: Path) -> None:
    waits = Waits()
    refused = [Failure(429, retry_after="1")]
    with model_server(failures=refused) as server:
        target = {"name": "mine", "provider": "openai", "model": "m", "base_url": server.base_url}
        suite = {
            "name": "held",
            "targets": [target],
            "execution": {"target": "mine"},
            "tests": [
                {"id": "x", "input": "hi", "assertions": [{"type": "contains", "value": "hi"}]}
            ],
        }
        path = tmp_path / "held.eval.yaml"
        path.write_text(json.dumps(suite))
        store = LocalStore(tmp_path / "store")
        run = plan_run(load_suite(path), store, now=datetime.now(UTC))
        thread = threading.Thread(target=execute_run, args=(run, ExecuteOptions(waits=waits)))
        thread.start()
        seen: set[str] = set()
        while thread.is_alive():
            seen |= set(waits.standing())
            time.sleep(0.02)
        thread.join()
    assert "mine Retry-After" in seen
    assert waits.standing() == {}
