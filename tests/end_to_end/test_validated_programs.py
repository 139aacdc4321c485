"""`evalcore validate` finds the files of programs that a suite names and that are missing."""

from __future__ import annotations

import json
import re
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


CALLED = {"type": "code-grader", "command": ["node", "lost.mjs"]}
AGGREGATED = {
    "type": "composite",
    "assertions": [{"type": "equals", "value": "x"}],
    "aggregator": CALLED,
}
TARGETS = [
    {"name": "a", "provider": "command", "command": ["python3", "lost.py", "{prompt}"]},
    {"name": "b", "provider": "cli", "command": "python3 lost.py {PROMPT_FILE}"},
]


def test_missing_programs_are_told_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "graders").mkdir()
    path = tmp_path / "s.eval.yaml"
    suite = graded_by(command=["python3", "graders/lost.py"])
    suite["tests"][0]["assertions"] += [
        {"type": "code-grader", "command": "python3 graders/lost.py --strict"},
        {"type": "code-grader", "command": ["./lost.py"], "cwd": "graders"},
        AGGREGATED,
    ]
    asked = {"id": "b", "input": "x", "assertions": [{"type": "equals", "value": "x"}]}
    suite["tests"].append(asked)
    more = {"execution": {"targets": ["a", "b"]}, "targets": TARGETS}
    path.write_text(json.dumps(suite | more, indent=1))
    wrong = [n for n, text in enumerate(path.read_text().split("\n"), 1) if "lost." in text]

    for flags, code in (((), 0), (("--strict",), 2)):
        ended = evalcore("validate", *flags, path)
        assert ended.code == code, ended.out
        told = [line for line in ended.err.splitlines() if "there is no file '" in line]
        found = sorted(int(re.search(r"(?:line |yaml:)(\d+): ", line)[1]) for line in told)
        assert found == wrong, ended.err


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
