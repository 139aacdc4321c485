"""What `evalcore dev` prints: commands that work, why there are none, how flow runs end."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from evalcore.prefect.dev import ending, first_steps

ENV = ".evalcore/dev/env"


def test_the_first_suite_that_the_worker_takes_is_run_whatever_it_is_called(
    tmp_path: Path,
) -> None:
    lines = first_steps(
        ENV, tmp_path, ["a.eval.yaml", "my suite's.eval.yaml"], {"a.eval.yaml": "x"}
    )
    assert lines[:2] == ["Try, in another shell:", f"  . {ENV}"]
    assert shlex.split(lines[2])[-1] == "suite=my suite's.eval.yaml"


def test_refused_suites_stand_before_the_commands_a_line_each(tmp_path: Path) -> None:
    lines = first_steps(ENV, tmp_path, ["a.eval.yaml"], {"a.eval.yaml": "imports b"})
    assert lines[:4] == [
        "The worker refuses every suite here:",
        "  a.eval.yaml: imports b",
        "",
        "Try, in another shell:",
    ]
    assert not any("deployment run" in line for line in lines)


def test_without_a_suite_the_command_that_writes_one_is_named(tmp_path: Path) -> None:
    assert "`evalcore init` writes one" in first_steps(ENV, tmp_path, [], {})[0]


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ({"name": "Completed", "message": "score 1.0"}, "Finished in state Completed: score 1.0"),
        ({"name": "Cancelled", "message": None}, "Finished in state Cancelled"),
        ({"name": "Crashed", "message": "code -9"}, "Finished in state Crashed: code -9"),
    ],
)
def test_a_flow_run_is_told_by_its_last_state(state: dict[str, str], line: str) -> None:
    assert ending({"name": "own", "state": state}) == f"own - {line}"
