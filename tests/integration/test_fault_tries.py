"""A few of the tries of `benchmarks.faults`: runs survive kills and stores that fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.shell import ROOT, environment

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.s3]


@pytest.mark.extended
def test_killed_runs_and_runs_on_failing_stores_report_as_undisturbed_ones() -> None:
    ways = "single process,workers"
    tries = ["--kills", "4", "--store-faults", "4", "--ways", ways, "--dry"]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults", *tries],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("| 2 | 2 | yes |") == 4
