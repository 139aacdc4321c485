"""A few trials of `benchmarks.faults`, in the night: disturbed runs end as undisturbed ones.

Each part has deterministic tests that always run: kills `test_cli_stop` and `test_faults`; faults,
pairs and suspended `test_faults`; deadly `test_process_ends`; budgets, rates `test_shared_limits`;
machines `test_prefect_machines`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.shell import ROOT, environment

pytestmark = [pytest.mark.extended, pytest.mark.multiprocess, pytest.mark.s3]

PARTS = (
    "kills",
    "faults",
    "pairs",
    "suspended",
    "deadly",
    "budgets",
    "rates",
    "prefect",
    "machines",
)


@pytest.mark.parametrize("part", PARTS)
def test_runs_that_are_disturbed_lose_double_and_overspend_nothing(part: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults", "--quick", "--dry", "--only", part],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| yes |" in ended.stdout
