"""`evalcore validate` finds the files of programs that a suite names and that are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.cli.check import program_file
from tests.support.shell import evalcore


def graded_by(**grader: Any) -> dict[str, Any]:
    assertion = {"type": "code-grader", **grader}
    return {
        "tests": [
            {"id": "a", "input": "x", "fixtures": {"output": "x"}, "assertions": [assertion]},
        ]
    }


def answered_by(**target: Any) -> dict[str, Any]:
    return {
        "execution": {"target": "t"},
        "targets": [{"name": "t", **target}],
        "tests": [{"id": "a", "input": "x", "assertions": [{"type": "equals", "value": "x"}]}],
    }


SUITES = {
    "grader": graded_by(command=["python3", "graders/lost.py"]),
    "grader, text": graded_by(command="python3 graders/lost.py --strict"),
    "grader, cwd": graded_by(command=["./lost.py"], cwd="graders"),
    "aggregator": {
        "tests": [
            {
                "id": "a",
                "input": "x",
                "fixtures": {"output": "x"},
                "assertions": [
                    {
                        "type": "composite",
                        "assertions": [{"type": "equals", "value": "x"}],
                        "aggregator": {"type": "code-grader", "command": ["node", "lost.mjs"]},
                    }
                ],
            }
        ]
    },
    "command": answered_by(provider="command", command=["python3", "lost.py", "{prompt}"]),
    "cli": answered_by(provider="cli", command="python3 lost.py {PROMPT_FILE}"),
}


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES.keys())
def test_a_missing_program_is_told_with_its_line(suite: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "graders").mkdir()
    path = tmp_path / "s.eval.yaml"
    path.write_text(json.dumps(suite, indent=1))
    line = next(n for n, text in enumerate(path.read_text().split("\n"), 1) if "lost." in text)

    ended = evalcore("validate", path)
    assert ended.code == 0, ended.err
    assert f"line {line}: " in ended.err
    assert "there is no file '" in ended.err

    ended = evalcore("validate", "--strict", path)
    assert ended.code == 2, ended.out
    assert f"{path}:{line}: " in ended.err
    assert "there is no file '" in ended.err


def test_a_program_that_is_there_or_may_be_made_is_none(tmp_path: Path) -> None:
    path = tmp_path / "s.eval.yaml"
    path.write_text(json.dumps(graded_by(command=["python3", "made.py"])))
    (tmp_path / "made.py").write_text("")
    assert evalcore("validate", "--strict", path).code == 0

    made = graded_by(command=["python3", "lost.py"]) | {"workspace": {"isolation": "per_test"}}
    path.write_text(json.dumps(made))
    assert evalcore("validate", "--strict", path).code == 0


def test_a_command_that_is_compared_or_configured_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("")
    call = {"tool": "bash", "args": {"command": "./lost.sh"}}
    suite = graded_by(command=["python3", "made.py"], config={"command": "./lost.sh"})
    trajectory = {"type": "tool-trajectory", "mode": "in_order", "expected": [call]}
    suite["tests"][0]["assertions"].append(trajectory)
    (tmp_path / "s.eval.yaml").write_text(json.dumps(suite))
    ended = evalcore("validate", "--strict", tmp_path / "s.eval.yaml")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["python3", "-c", "import x.py"], None),
        (["python3", "-m", "grader.py"], None),
        ("cd graders && ./check.py", None),
        (["jq", ".a"], None),
        (["docker", "run", "image", "grade.py"], None),
        (["/usr/bin/lost", "x.py"], None),
        (["uv", "run", "grade.py", "other.py"], "grade.py"),
        ("bin/grade --fast", "bin/grade"),
        ("PYTHONPATH=. python3 grade.py", None),
        (["python3", "{prompt}.py"], None),
    ],
)
def test_the_file_of_a_command_is_found_where_it_shows(
    command: str | list[str], file: str | None
) -> None:
    assert program_file(command) == file
