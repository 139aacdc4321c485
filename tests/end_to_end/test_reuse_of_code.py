"""Code is behaviour: `--reuse` sees what targets, graders and tools are made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.shell import Ended, evalcore

TARGET = """
from pathlib import Path
from .parts import wording

def answer(input, *, context):
    with open(Path(__file__).parents[1] / "calls.txt", "a") as file:
        file.write(f"{context.case_id}\\n")
    return wording.WORD
"""
COMMAND = """
import sys
from words import WORD

with open("calls.txt", "a") as file:
    file.write("call\\n")
print(WORD)
"""
GRADER = """
import json
from grading import SCORE

with open("graded.txt", "a") as file:
    file.write("graded\\n")
print(json.dumps({"score": SCORE}))
"""


class Project:
    """A folder with a suite, and how often its target was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writes = 0

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Python takes a source of the same size and second for the one it compiled.
        self._writes += 1
        second = path.stat().st_mtime + self._writes
        os.utime(path, (second, second))

    def suite(self, name: str, document: dict[str, Any]) -> None:
        self.write(name, yaml.safe_dump(document, sort_keys=False))

    def run(self, *arguments: str, code: int | None = None) -> Ended:
        for name in ("calls.txt", "graded.txt"):
            self.write(name, "")
        ended = evalcore(*arguments, "--json", store=self.folder / "store", cwd=self.folder)
        assert code is None or ended.code == code, ended.out + ended.err
        return ended

    def lines(self, name: str) -> int:
        return len((self.folder / name).read_text().splitlines())

    @property
    def calls(self) -> int:
        return self.lines("calls.txt")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "suites").mkdir()
    return Project(tmp_path)


def python_suite() -> dict[str, Any]:
    return {
        "name": "code",
        "targets": [{"name": "own", "provider": "python", "callable": "package.target:answer"}],
        "execution": {"target": "own"},
        "tests": [
            {
                "id": f"t{number}",
                "input": "question",
                "assertions": [{"type": "equals", "value": "right"}],
            }
            for number in range(3)
        ],
    }


def test_a_mended_target_is_executed_again_and_an_untouched_one_is_not(project: Project) -> None:
    project.write("package/__init__.py", "")
    project.write("package/target.py", TARGET)
    project.write("package/parts/wording.py", "WORD = 'wrong'\n")  # parts has no __init__
    project.suite("suite.yaml", python_suite())
    first = project.run("run", "suite.yaml", code=1)
    assert project.calls == 3
    # Its import is mended, two levels down.
    project.write("package/parts/wording.py", "WORD = 'right'\n")
    project.run("run", "suite.yaml", "--reuse", code=0)
    assert project.calls == 3
    for path in project.folder.rglob("*.py"):
        os.utime(path, (1, 1))
    again = project.run("run", "suite.yaml", "--reuse", code=0)
    assert project.calls == 0
    reused = again.report["run"]["reused"]
    assert [entry["items"] for entry in reused] == [3]
    assert reused[0]["run"] != first.report["run"]["id"]
    # What it was, is still there under its own identity.
    project.write("package/parts/wording.py", "WORD = 'wrong'\n")
    before = project.run("run", "suite.yaml", "--reuse", code=1)
    assert project.calls == 0
    assert before.report["run"]["reused"] == [{"run": first.report["run"]["id"], "items": 3}]


def test_a_changed_grader_executes_python_again_and_regrade_calls_nobody(
    project: Project,
) -> None:
    project.write("target.py", COMMAND)
    project.write("words.py", "WORD = 'right'\n")
    project.write("grader.py", GRADER)
    project.write("grading.py", "SCORE = 0.0\n")
    suite = python_suite()
    suite["targets"] = [
        {"name": "own", "provider": "command", "command": ["bash", "-c", "python target.py"]}
    ]
    suite["tests"][0]["assertions"] = [{"type": "code-grader", "command": "python ./grader.py"}]
    project.suite("suite.yaml", suite)
    first = project.run("run", "suite.yaml", code=1)
    assert (project.calls, project.lines("graded.txt")) == (3, 1)
    project.write("grading.py", "SCORE = 1.0\n")
    project.run("regrade", first.report["run"]["id"], code=0)
    assert (project.calls, project.lines("graded.txt")) == (0, 1)
    # The target's program is Python of the same root.
    project.run("run", "suite.yaml", "--reuse", code=0)
    assert (project.calls, project.lines("graded.txt")) == (3, 1)
    project.run("run", "suite.yaml", "--reuse", code=0)
    assert (project.calls, project.lines("graded.txt")) == (0, 0)
    project.write("words.py", "WORD = 'wrong'\n")
    # Evidence that is there is graded again, also when the target has changed.
    project.run("regrade", first.report["run"]["id"], code=0)
    assert project.calls == 0
    project.run("run", "suite.yaml", "--reuse", code=1)
    assert project.calls == 3


def test_a_tool_of_a_script_executes_the_tests_again_that_can_see_it(project: Project) -> None:
    project.write("tools.py", "def speak():\n    return 'wrong'\n")
    test = {"tools": [{"import_tool": "tools.speak"}], "do": [{"call": "speak"}]}
    project.suite(
        "suite.yaml",
        {"tests": {"tool": test, "plain": {"do": [{"eval": "1.0"}]}}},
    )
    first = project.run("run", "suite.yaml")
    assert first.report["counts"]["planned"] == 2, first.err
    project.write("tools.py", "def speak():\n    return 'right'\n")
    again = project.run("run", "suite.yaml", "--reuse")
    assert [entry["items"] for entry in again.report["run"]["reused"]] == [1]
