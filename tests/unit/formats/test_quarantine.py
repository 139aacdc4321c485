"""Quarantined cases run, are reported, and do not gate."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evalcore.cli.main import cli
from evalcore.errors import EvalError, LoadError
from evalcore.formats.quarantine import add_entry, read_quarantine, remove_entry
from evalcore.history.sync import sync
from evalcore.history.trend import returning_cases
from evalcore.model.suite import QuarantineEntry
from evalcore.storage.local import LocalStore

_ACTIVE = "- {case: b, until: 2999-01-01, owner: ann, reason: flaky}\n"
_EXPIRED = "- {case: b, until: 2020-01-01, owner: ann}\n"
_FORMATS = {
    "test-file": (
        "s.eval.yaml",
        """
evalcore: {gates: [{gate: pass_rate, threshold: 1}]}
tests:
  - {id: a, input: x, fixtures: {output: one}, assertions: [{type: contains, value: one}]}
  - {id: b, input: x, fixtures: {output: one}, assertions: [{type: contains, value: two}]}
""",
    ),
    "suite": (
        "s.suite.yaml",
        """
name: s
flow: {blocks: []}
gates: [{gate: pass_rate, threshold: 1}]
cases:
  - {id: a, fixtures: {output: one}, assertions: [{type: contains, value: one}]}
  - {id: b, fixtures: {output: one}, assertions: [{type: contains, value: two}]}
""",
    ),
}


def _run(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(
        cli, ["run", *arguments, "--json", "--store", str(folder / "store")], standalone_mode=False
    )
    if isinstance(done.exception, EvalError):
        raise done.exception
    assert done.stdout, done
    return int(done.return_value), json.loads(done.stdout)


def _suite(folder: Path, quarantine: str, format_: str = "test-file") -> str:
    name, text = _FORMATS[format_]
    (folder / name).write_text(text)
    (folder / "quarantine.yaml").write_text(quarantine)
    return str(folder / name)


def test_a_quarantined_case_runs_and_is_reported_and_does_not_gate(tmp_path: Path) -> None:
    code, report = _run(tmp_path, _suite(tmp_path, _ACTIVE))
    assert (code, report["decision"]) == (0, "pass")
    assert report["counts"]["planned"] == 2
    assert report["counts"]["failed"] == 1
    assert report["summary"]["pass_rate"] == 0.5
    assert [case.get("quarantined") for case in report["cases"]] == [None, True]
    assert report["quarantine"][0]["owner"] == "ann"


def test_a_quarantined_case_does_not_gate_when_a_run_is_graded_again(tmp_path: Path) -> None:
    path = _suite(tmp_path, _ACTIVE)
    code, report = _run(tmp_path, path, "--stop-when-decided")
    assert (code, report["decision"], report["counts"]["planned"]) == (0, "pass", 2)
    again = CliRunner().invoke(
        cli,
        ["regrade", report["run"]["id"], "--json", "--store", str(tmp_path / "store")],
        standalone_mode=False,
    )
    graded = json.loads(again.stdout)
    assert (again.return_value, graded["decision"]) == (0, "pass")
    assert graded["counts"]["failed"] == 1
    assert [case.get("quarantined") for case in graded["cases"]] == [None, True]
    # An old decision is repeated after the file changed.
    (tmp_path / "quarantine.yaml").unlink()
    shown = CliRunner().invoke(
        cli, ["report", report["run"]["id"], "--json", "--store", str(tmp_path / "store")]
    )
    assert json.loads(shown.stdout) == report


def test_an_expired_entry_gates_again_and_the_report_says_so(tmp_path: Path) -> None:
    code, report = _run(tmp_path, _suite(tmp_path, _EXPIRED))
    assert code == 1
    assert [entry["expired"] for entry in report["quarantine"]] == [True]


def _gates(*gates: str) -> list[str]:
    return [word for gate in gates for word in ("--gate", gate)]


@pytest.mark.parametrize("iterations", ["1", "3"])
def test_if_every_case_is_quarantined_nothing_passes(tmp_path: Path, iterations: str) -> None:
    both = _ACTIVE + _ACTIVE.replace("case: b", "case: a")
    path = _suite(tmp_path, both)
    gates = _gates("pass_rate=0", "score_at_least=0", "required_cases=b", "no_new_failures")
    code, report = _run(tmp_path, path, *gates, "--iterations", iterations)
    assert (code, report["decision"], len(report["gates"])) == (3, "inconclusive", 5)
    assert {row["outcome"] for row in report["gates"]} == {"inconclusive"}


@pytest.mark.parametrize("iterations", ["1", "2"])
def test_no_gate_counts_a_quarantined_case(tmp_path: Path, iterations: str) -> None:
    path = _suite(tmp_path, _ACTIVE)
    passing = ("pass_rate=1", "score_at_least=1", "reliable=1", "error_rate_under=0.1")
    gates = _gates(*passing, "required_cases=a,b")
    assert _run(tmp_path, path, *gates, "--iterations", iterations)[0] == 0
    assert _run(tmp_path, path, "--gate", "required_cases=b")[0] == 3


def test_a_regression_of_a_quarantined_case_does_not_gate(tmp_path: Path) -> None:
    path = _suite(tmp_path, "# none\n")
    good = Path(path).read_text()
    Path(path).write_text(good.replace("value: two", "value: one"))
    _, first = _run(tmp_path, path)
    Path(path).write_text(good)
    arguments = [path, "--gate", "no_regressions", "--baseline", first["run"]["id"]]
    assert _run(tmp_path, *arguments)[0] == 1
    (tmp_path / "quarantine.yaml").write_text(_ACTIVE)
    assert _run(tmp_path, *arguments)[0] == 0


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("- {case: b, until: 2999-01-01}\n", "quarantine.yaml:1: [0].owner: is required"),
        ("\n- {case: b, owner: a}\n", "quarantine.yaml:2: [0].until: is required"),
        ("- {case: b, until: soon, owner: a}\n", "[0].until: expected a day"),
        ("- {case: '', until: 2999-01-01, owner: a}\n", "[0].case: must not be empty"),
        ("- {case: b, until: 2999-01-01, ownr: a, owner: b}\n", "Did you mean 'owner'"),
        ("case: b\n", "expected a list, got a mapping"),
        (_ACTIVE + _ACTIVE, "'b' is quarantined twice"),
        ("- {case: b\n", "quarantine.yaml:"),
    ],
)
def test_a_mistake_in_the_file_is_a_load_error(tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(LoadError) as caught:
        _run(tmp_path, _suite(tmp_path, text))
    assert mistake in str(caught.value)


@pytest.mark.parametrize("format_", list(_FORMATS))
def test_the_file_is_read_for_every_format(tmp_path: Path, format_: str) -> None:
    with pytest.raises(LoadError, match="owner: is required"):
        _run(tmp_path, _suite(tmp_path, "- {case: b, until: 2999-01-01}\n", format_))


def test_an_unknown_case_is_a_warning_with_the_near_id(tmp_path: Path) -> None:
    path = _suite(tmp_path, _ACTIVE.replace("case: b", "case: B"))
    done = CliRunner().invoke(cli, ["validate", path])
    assert "has no case 'B'" in done.output
    assert "Did you mean 'b'?" in done.output


def test_adding_and_removing_keeps_comments_at_the_head(tmp_path: Path) -> None:
    path = tmp_path / "quarantine.yaml"
    first = QuarantineEntry("a: #1", "2999-01-01", "ann", "50 % of: nights")
    second = QuarantineEntry("17", "2999-01-01", "bob", "")
    assert not add_entry(path, first)
    path.write_text("# ours\n" + path.read_text())
    assert not add_entry(path, second)
    assert read_quarantine(path) == (first, second)
    assert add_entry(path, replace(first, owner="cid"))
    assert read_quarantine(path) == (second, replace(first, owner="cid"))
    assert path.read_text().startswith("# ours\n- case: '17'")
    assert remove_entry(path, "17")
    assert remove_entry(path, "a: #1")
    assert read_quarantine(path) == ()
    assert not add_entry(path, second)
    assert read_quarantine(path) == (second,)


def test_a_day_is_over_at_its_end(tmp_path: Path) -> None:
    entry = QuarantineEntry("a", "2026-03-01", "x", "")
    assert not entry.has_expired(date(2026, 3, 1))
    assert entry.has_expired(date(2026, 3, 2))


def test_a_case_that_passed_in_quarantine_is_ready_to_return(tmp_path: Path) -> None:
    path = _suite(tmp_path, _ACTIVE)
    entries = read_quarantine(tmp_path / "quarantine.yaml")
    store = LocalStore(tmp_path / "store")
    for contained, ready in (("two", False), ("one", False), ("one", True)):
        text = _FORMATS["test-file"][1].replace("value: two", f"value: {contained}")
        Path(path).write_text(text)
        _run(tmp_path, path)
        sync(store)
        returning = returning_cases(store, entries, runs=2)
        assert returning == ({entries[0]: ("s",)} if ready else {})
