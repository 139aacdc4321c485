"""A run whose process was killed while it planned: nothing of it is damaged, nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalcore.cli.main import call
from evalcore.storage.local import LocalStore

KEPT = {"manifest": 1, "the suite": 2, "all but the signature": 3}
COMMANDS = (("run", "--resume"), ("report",), ("runs", "verify"), ("runs", "show"))


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    path = tmp_path / "planned.eval.yaml"
    check = {"type": "contains", "value": "x"}
    case = {"id": "a", "input": "x", "fixtures": {"output": "x"}, "assertions": [check]}
    path.write_text(json.dumps({"name": "planned", "tests": [case]}))
    return path


def plan_and_die(suite: Path, writes: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plan a run in a process that dies after so many writes; return the run's id."""
    put, left = LocalStore.put_if_absent, iter(range(writes))

    def die(store: LocalStore, key: str, data: bytes | Path) -> str | None:
        if next(left, None) is None:
            raise SystemExit(137)
        return put(store, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", die)
        with pytest.raises(SystemExit):
            call(["run", str(suite)])
    (folder,) = (suite.parent / "store" / "runs" / "planned").iterdir()
    return folder.name


@pytest.mark.parametrize("writes", KEPT.values(), ids=KEPT.keys())
def test_a_run_that_was_stopped_while_it_was_planned_says_so(
    suite: Path, writes: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = plan_and_die(suite, writes, monkeypatch)
    capsys.readouterr()
    for command in COMMANDS:
        assert call([*command, run]) == 4
        assert capsys.readouterr().err == (
            f"run {run} was stopped before it was planned and has executed nothing; "
            "run the suite again\n"
        )
    assert call(["runs", "list"]) == 0
    (_, line) = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == [run, "unplanned"]
