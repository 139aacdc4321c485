"""What the shell offers on Tab."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.fork_server import PROGRAM
from tests.support.shell import environment

RUNS = ["latest", "last", "last-pass", "main"]
NEWEST, OLDEST = "20260519T100000Z-0a1b2c", "20260518T100000Z-ffffff"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with suites and a store with two runs."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "a.eval.yaml").write_text("tests: [{id: refund, input: a}, {id: open, input: b}]\n")
    (folder / "b.yaml").write_text("workflow: {name: w}\neval: {cases: [{id: one}, {id: two}]}\n")
    (folder / "broken.yaml").write_text("tests: [{id: x}\n")
    (folder / ".evalcore/runs/support" / OLDEST).mkdir(parents=True)
    (folder / ".evalcore/runs/a%20b" / NEWEST).mkdir(parents=True)
    return folder


def offered(line: str, folder: Path) -> list[str]:
    """Return what bash is offered for the last word of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ended = subprocess.run(
        [PROGRAM],
        cwd=folder,
        env=environment(_EVALCORE_COMPLETE="bash_complete", **words),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return [each.partition(",")[2] for each in ended.stdout.split()]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("evalcore ann", ["annotate", "annotations"]),
        ("evalcore runs v", ["verify"]),
        ("evalcore run --stop", ["--stop-when-decided"]),
        ("evalcore report ", [*RUNS, NEWEST, OLDEST]),
        ("evalcore compare last 20260518", [OLDEST]),
        ("evalcore run --resume last", ["last", "last-pass"]),
        ("evalcore run a.eval.yaml --case ", ["refund", "open"]),
        ("evalcore run b.yaml --case t", ["two"]),
        ("evalcore run broken.yaml --case ", []),
        ("evalcore report --store s3://no/such ", RUNS),
    ],
)
def test_tab_offers(line: str, values: list[str], folder: Path) -> None:
    assert offered(line, folder) == values


@pytest.mark.parametrize("line", ["evalcore nope --x ", "evalcore run 'a", "evalcore report ", ""])
def test_what_cannot_be_completed_says_nothing(line: str, tmp_path: Path) -> None:
    (tmp_path / "evalcore.toml").write_text("store = [broken")
    offered(line, tmp_path)
