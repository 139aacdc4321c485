"""What `evalcore dev` says to try: commands that work, and why there are none for a suite."""

from __future__ import annotations

import shlex
from pathlib import Path

from evalcore.prefect.dev_services import first_steps

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
