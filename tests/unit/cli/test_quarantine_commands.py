"""`evalcore quarantine`: entries are added, listed and removed, and mistakes say what works."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalcore.cli.keep import quarantine
from evalcore.errors import UsageError
from evalcore.model.suite import READY_AFTER_RUNS
from evalcore.storage.local import LocalStore
from tests.support.history_runs import run_outputs

LATER = (datetime.now(UTC).date() + timedelta(days=30)).isoformat()


def invoke(*arguments: str, folder: Path) -> str:
    stores = () if arguments[0] == "remove" else ("--store", str(folder / "store"))
    command = [*arguments, "--suite", str(folder), *stores]
    result = CliRunner().invoke(quarantine, command)
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_entry_is_added_changed_listed_and_removed(tmp_path: Path) -> None:
    assert "no case is quarantined" in invoke("list", folder=tmp_path)
    assert json.loads(invoke("list", "--json", folder=tmp_path)) == []
    add = ("add", "slow", "--until", LATER, "--owner", " ada ")
    assert f"slow is in {tmp_path}" in invoke(*add, folder=tmp_path)
    out = invoke(*add, "--reason", "times out", folder=tmp_path)
    assert "slow is changed in" in out
    assert invoke("list", folder=tmp_path) == (
        f"slow  until {LATER} (does not gate)  ada  times out\n"
    )
    (row,) = json.loads(invoke("list", "--json", folder=tmp_path))
    assert (row["case"], row["owner"], row["expired"], row["ready_in"]) == (
        "slow", "ada", False, [],
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"no entry of case 'slwo'\..*slow"):
        invoke("remove", "slwo", folder=tmp_path)
    assert invoke("remove", "slow", folder=tmp_path) == "slow gates again\n"
    assert "no case is quarantined" in invoke("list", folder=tmp_path)


def test_a_case_that_passes_in_each_of_the_last_runs_is_ready_to_return(tmp_path: Path) -> None:
    invoke("add", "steady", "--until", LATER, "--owner", "ada", folder=tmp_path)
    invoke("add", "flaky", "--until", LATER, "--owner", "ada", folder=tmp_path)
    store = LocalStore(tmp_path / "store")
    for number in range(READY_AFTER_RUNS):
        flaky = "bad" if number == 0 else "good"
        run_outputs(store, tmp_path, {"steady": "good", "flaky": flaky}, name="answers")
    steady, flaky = sorted(invoke("list", folder=tmp_path).splitlines(), reverse=True)
    assert f"ready to return: passed in the last {READY_AFTER_RUNS} runs of answers" in steady
    assert "ready" not in flaky


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "--until", "soon", "--owner", "ada"), "expected a day such as 2026-12-24"),
        (("a", "--until", "2020-01-01", "--owner", "ada"), "must not be in the past: 2020-01-01"),
        (("a", "--until", LATER, "--owner", " "), "has an id and an owner"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        invoke("add", *arguments, folder=tmp_path)
    assert list(tmp_path.glob("*.y*ml")) == []


def test_a_suite_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing does not exist"):
        invoke("list", folder=tmp_path / "missing")
