"""No program that a run starts reads the environment or memory of the processes that run it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.shell import Json, evalcore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")

SECRET = "do-not-read-me-0451"
# Prints what it could read of its ancestors, and of every process whose command line is evalcore's.
# The secret is spelled backwards, so that no redactor is what hides it.
SPY = """
import os

def spy(*_, **__):
    seen, pid = [], os.getppid()
    while pid > 1:
        command = open(f"/proc/{pid}/cmdline", "rb").read()
        if b"evalcore" not in command:
            break
        for name in ("environ", "mem"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    data = file.read() if name == "environ" else b"opened"
            except OSError as error:
                data = b"refused"
            seen.append(data.strip(b"\\0").replace(b"\\0", b" ").decode("utf-8", "replace")[::-1])
        seen.append(command.decode("utf-8", "replace")[::-1])
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    return " ".join(seen) or "no evalcore above"
"""
PRINTING = "import json, sys, spying; print(json.dumps({'score': 1, 'reasoning': spying.spy()}))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spying.py").write_text(SPY)
    (tmp_path / "grade.py").write_text(PRINTING)
    (tmp_path / "answer.py").write_text("import spying; print(spying.spy())")
    return tmp_path


def run(folder: Path, suite: Json, *flags: str) -> list[str]:
    """Return what each case of the run left in the report."""
    path = folder / "suite.eval.yaml"
    path.write_text(json.dumps(suite))
    ended = evalcore(
        "run",
        path,
        "--json",
        "-v",
        *flags,
        store=folder / "store",
        cwd=folder,
        env={"NOT_YOURS": SECRET},
        forked=False,
    )
    cases = ended.report["cases"]
    assert {case["items"][0]["status"] for case in cases} == {"completed"}, cases
    return [json.dumps(case) for case in cases]


def check_nothing_was_read(cases: list[str]) -> None:
    for case in cases:
        assert "eroclave" in case, "it saw no process of evalcore"
        assert SECRET[::-1] not in case
        assert "denepo" not in case, "it opened the memory of a process"


CONTAINS = {"type": "contains", "value": "not there"}


def test_nothing_that_a_run_starts_reads_of_its_parents(folder: Path) -> None:
    line = "import pathlib, spying; pathlib.Path('seen.txt').write_text(spying.spy())"
    hook = {"command": ["env", f"PYTHONPATH={folder}", sys.executable, "-c", line]}
    grader = {"type": "code-grader", "command": [sys.executable, "grade.py"]}
    commands = {"command": [sys.executable, "answer.py"], "hook": ["cat", "seen.txt"]}
    targets: list[Json] = [
        {"name": name, "provider": "command", "command": command}
        for name, command in commands.items()
    ]
    targets.append({"name": "python", "provider": "python", "callable": "spying:spy"})
    suite: Json = {
        "workspace": {"hooks": {"before_all": hook}},
        "targets": targets,
        "tests": [
            {"id": name, "input": "q", "execution": {"target": name}, "assertions": [check]}
            for name, check in (
                ("command", CONTAINS),
                ("python", CONTAINS),
                ("hook", CONTAINS),
                ("command", grader),
            )
        ],
    }
    suite["tests"][-1]["id"] = "grader"
    check_nothing_was_read(run(folder, suite))


def test_a_command_of_a_worker_reads_nothing_of_its_parents(folder: Path) -> None:
    suite = {
        "execution": {"target": "t"},
        "targets": [{"name": "t", "provider": "command", "command": [sys.executable, "answer.py"]}],
        "tests": [{"id": "a", "input": "q", "assertions": [CONTAINS]}],
    }
    check_nothing_was_read(run(folder, suite, "--workers", "2"))
