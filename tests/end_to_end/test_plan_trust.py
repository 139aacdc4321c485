"""Plans of others in a shared store, by the command line: what is refused, and how."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evalcore.formats.registry import load_suite
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.shell import Ended, environment, evalcore

Json = dict[str, Any]


class Shared:
    """A store that several users share; `work` is the folder of the one who runs commands."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.marker = folder / "marker"
        self.store = LocalStore(folder / "store")
        self._users, self._patch = folder / "users", monkeypatch

    def plan(self, suite: Json, user: str, **options: Any) -> StoredRun:
        """Plan a run as a user who executes nothing of it."""
        self._patch.setenv("XDG_STATE_HOME", str(self._users / user))
        path = self.work / "suite.eval.yaml"
        tests = [{"id": "a", "input": "x", "assertions": [{"type": "regex", "value": "^"}]}]
        path.write_text(json.dumps({"tests": tests, **suite}))
        return plan_run(load_suite(path), self.store, PlanOptions(**options), now=datetime.now(UTC))

    def plan_command(self, user: str, **options: Any) -> StoredRun:
        target = {"name": "default", "provider": "command", "command": ["touch", str(self.marker)]}
        return self.plan({"targets": [target]}, user, **options)

    def call(self, *arguments: str, user: str = "me", **more: str) -> Ended:
        state = str(self._users / user)
        env = environment(self.store.url, XDG_STATE_HOME=state, **more)
        return evalcore(*arguments, cwd=self.work, env=env)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    return Shared(tmp_path, monkeypatch)


def one_message(ended: Ended) -> str:
    """Return what a command said in its only line; it printed no report."""
    assert "Traceback" not in ended.err
    lines = [line for line in ended.err.splitlines() if line.strip()]
    assert (ended.out, len(lines)) == ("", 1), ended.err
    return lines[0]


@pytest.mark.parametrize("command", [("run", "--resume"), ("run", "--workers", "2", "--resume")])
def test_a_plan_of_another_user_starts_no_program(shared: Shared, command: tuple[str, ...]) -> None:
    run = shared.plan_command("somebody", workers=2)
    ended = shared.call(*command, run.run_id)

    assert ended.code == 2
    assert "EVALCORE_ALLOW_COMMANDS" in one_message(ended)
    assert not shared.marker.exists()
    assert not list(shared.store.list(run.keys.results_prefix))


def test_settings_allow_what_a_plan_of_another_user_asks_for(shared: Shared) -> None:
    run = shared.plan_command("somebody")
    ended = shared.call("run", "--resume", run.run_id, EVALCORE_ALLOW_COMMANDS="1")

    assert ended.code == 0
    assert shared.marker.exists()


@pytest.mark.multiprocess
def test_workers_of_a_signed_run_have_its_key(shared: Shared) -> None:
    run = shared.plan_command("me", workers=2)
    ended = shared.call("run", "--workers", "2", "--resume", run.run_id, EVALCORE_PLAN_KEY="")

    assert ended.code == 0, ended.err
    assert shared.marker.exists()


@pytest.mark.parametrize("part", ["plan/suite.json", "manifest.json"])
def test_runs_verify_lists_what_is_not_what_was_signed(shared: Shared, part: str) -> None:
    run = shared.plan_command("me")
    path = shared.store.local_path(f"{run.keys.folder}{part}")
    changed = path.read_bytes().replace(b"touch", b"mkdir").replace(b'"live"', b'"auto"')
    path.write_bytes(changed)
    # The digests of the signature count without the key, too.
    for user in ("me", "somebody"):
        ended = shared.call("runs", "verify", run.run_id, user=user)
        assert ended.code == 4
        assert f"damaged: {part} is not what was signed" in ended.out


def test_a_run_is_not_taken_apart_whose_plan_is_not_executed(shared: Shared) -> None:
    run = shared.plan_command("somebody")
    assert shared.call("run", "--resume", run.run_id, user="somebody").code == 0
    shared.marker.unlink()
    path = shared.store.local_path(run.keys.result(0))
    path.write_bytes(path.read_bytes()[:-9])
    ended = shared.call("runs", "verify", run.run_id, "--repair")

    assert ended.code == 2
    assert "EVALCORE_ALLOW_COMMANDS" in ended.err
    assert (path.exists(), shared.marker.exists()) == (True, False)
    assert shared.call("runs", "verify", run.run_id, "--repair", user="somebody").code == 0


def test_regrade_reads_no_suite_that_a_plan_of_another_user_names(shared: Shared) -> None:
    run = shared.plan({"targets": [{"name": "default", "provider": "echo"}]}, "somebody")
    assert shared.call("run", "--resume", run.run_id, user="somebody").code == 0
    path = shared.store.local_path(run.keys.plan_suite)
    raw = json.loads(path.read_bytes())
    raw["source"]["folder"] = "/srv/elsewhere"
    path.write_text(json.dumps(raw))
    shared.store.delete(run.keys.plan_signature)
    ended = shared.call("regrade", run.run_id)

    assert ended.code == 2
    assert "does not lie below" in one_message(ended)
    assert shared.call("regrade", run.run_id, "suite.eval.yaml").code == 0
