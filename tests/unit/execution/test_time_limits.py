"""Items whose target runs the author's own code end without a limit of the suite, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.targets import registry
from evalcore.trust.imports import ImportPolicy

SLEEPER = "import asyncio\nasync def answer(_):\n    await asyncio.sleep(0.5)\n    return 'yes'\n"


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the default limit of every kind that has one be 0.1 s."""
    facts: Callable[[str], registry.TargetKind] = registry.kind_facts

    def short(kind: str) -> registry.TargetKind:
        known = facts(kind)
        return known if known.item_timeout_s is None else known._replace(item_timeout_s=0.1)

    monkeypatch.setattr(registry, "kind_facts", short)


def item_of(folder: Path, **section: Any) -> Any:
    """Return the item of a run whose Python target takes half a second."""
    (folder / "sleeper.py").write_text(SLEEPER)
    suite = {
        "name": "slow",
        "targets": [{"name": "t", "provider": "python", "callable": "sleeper:answer"}],
        "execution": {"target": "t"},
        "evalcore": section,
        "tests": [{"id": "x", "input": "a", "assertions": [{"type": "contains", "value": "yes"}]}],
    }
    path = folder / "slow.eval.yaml"
    path.write_text(json.dumps(suite))
    run = plan_run(load_suite(path), LocalStore(folder / "store"), now=datetime.now(UTC))
    execute_run(run, ExecuteOptions(ImportPolicy(roots=(folder,))))
    with finish_run(run, now=datetime.now(UTC)) as view:
        return json.loads(view.json())["cases"][0]["items"][0]


@pytest.mark.usefixtures("short_limit")
def test_an_item_ends_at_the_default_limit_and_says_how_to_raise_it(tmp_path: Path) -> None:
    error = item_of(tmp_path)["error"]
    assert error["kind"] == "timeout"
    assert error["message"].startswith("no answer within 0.1 s (the default of kind python")
    assert "limits.timeout_s" in error["message"]


@pytest.mark.usefixtures("short_limit")
def test_the_limit_of_the_suite_may_be_longer_than_the_default(tmp_path: Path) -> None:
    assert item_of(tmp_path, limits={"timeout_s": 30})["status"] == "completed"
