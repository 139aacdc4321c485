"""Run commands as processes of their own and measure them; write the section of RESULTS.md."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
EVALCORE = str(Path(sys.executable).with_name("evalcore"))


class Measured(NamedTuple):
    """One process: wall-clock seconds from start to end, peak resident memory in MB (10⁶ bytes)."""

    seconds: float
    peak_mb: float


class CommandFailedError(Exception):
    """A measured command ended with another exit code than 0."""


# A small process of its own: a child's peak counts what its parent had when it was forked. Unlike
# getrusage(RUSAGE_CHILDREN), wait4 tells the peak of the one process alone.
_MEASURER = """
import json, os, subprocess, sys, time
started = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
print(json.dumps([time.perf_counter() - started, process.returncode, usage.ru_maxrss]))
"""


def run_measured(command: Sequence[str]) -> Measured:
    """Run a command to its end; raise `CommandFailedError` with what it wrote to standard error."""
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith("EVALCORE_")
    }
    # Else each process of a changed checkout compiles it again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as errors:
        measured = subprocess.run(
            [sys.executable, "-S", "-c", _MEASURER, *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=ROOT,
            check=True,
        )
        seconds, code, peak = json.loads(measured.stdout)
        if code:
            errors.seek(0)
            message = errors.read().decode(errors="replace")
            raise CommandFailedError(f"{' '.join(command)}: exit code {code}\n{message}")
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return Measured(seconds, peak * unit / 1e6)


def in_turn(*runs: Callable[[], Measured], rounds: int) -> list[Measured]:
    """Run all in turn, `rounds` times; return each one's median time and largest peak.

    In turn, so that a machine that is busy for a while slows all of them.
    """
    measured_runs: list[list[Measured]] = [[] for _ in runs]
    for _ in range(rounds):
        for rounds_of_run, run in zip(measured_runs, runs, strict=True):
            rounds_of_run.append(run())
    return [
        Measured(median(m.seconds for m in rounds_of_run), max(m.peak_mb for m in rounds_of_run))
        for rounds_of_run in measured_runs
    ]


class Row(NamedTuple):
    """A line of the table; `missed` says which bound was not kept, "" if all were."""

    cells: tuple[str, ...]
    missed: str

    @property
    def verdict(self) -> str:
        """What the table says about the bounds."""
        return f"no: {self.missed}" if self.missed else "yes"


def execution_times(store: Path) -> tuple[float, float]:
    """Return when the only run of a store took its lease, and its last commit (s since 1970)."""
    (lease,) = store.glob("runs/*/*/lease.json")
    began = datetime.fromisoformat(json.loads(lease.read_bytes())["began"])
    commits = (part.stat().st_mtime for part in lease.parent.glob("results/*"))
    return began.timestamp(), max(commits)


def table(header: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a Markdown table with a last column that says whether the bounds were kept."""
    lines = [
        f"| {' | '.join((*header, 'kept'))} |",
        f"|---|{'---:|' * (len(header) - 1)}---|",
    ]
    lines += [f"| {' | '.join((*row.cells, row.verdict))} |" for row in rows]
    return "\n".join(lines)


def machine() -> str:
    """Return what the figures were measured on."""
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{where}, Python {platform.python_version()}"


def write_section(name: str, text: str) -> None:
    """Put the text between the markers `<!-- name -->` of RESULTS.md, made if there are none."""
    marker = f"<!-- {name} -->"
    section = f"{marker}\n{text}\n{marker}"
    old = RESULTS.read_text("utf-8") if RESULTS.exists() else "# Benchmark results\n"
    pattern = re.compile(f"{re.escape(marker)}.*?{re.escape(marker)}", re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: section, old)
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    RESULTS.write_text(new, "utf-8")
