"""How much longer the same shards take through Prefect than in this process alone.

    uv run python -m benchmarks.orchestration [--cases N] [--rounds N]

Measured from the first shard's start to the last shard's commit, as the manifest records them;
start-up of the orchestrator is not part of it. The flow executes its shards in one process, so the
command alone does, too. Exit code 1 if the bound is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import (
    EVALCORE,
    CommandFailedError,
    Row,
    machine,
    run_measured,
    table,
    write_section,
)
from benchmarks.throughput import write_cases

BOUND = 1.05
# `evalcore`, as if this machine had one core for it: without forks that share the shards.
ONE_PROCESS = """\
import sys
from evalcore.isolation import forking
forking.process_limit = lambda: 1
from evalcore.cli.main import main
sys.argv[0] = "evalcore"
main()
"""


def execution_s(suite: Path, store: Path, *flags: str) -> float:
    """Run the suite; return the seconds from the first shard's start to the last commit."""
    shutil.rmtree(store, ignore_errors=True)
    command = [EVALCORE] if flags else [sys.executable, "-c", ONE_PROCESS]
    run_measured([*command, "run", str(suite), "--store", str(store), *flags])
    (manifest,) = store.glob("runs/*/*/manifest.json")
    facts = json.loads(manifest.read_bytes())["execution"]
    first = datetime.fromisoformat(facts["first_shard_started_at"])
    return (datetime.fromisoformat(facts["last_shard_committed_at"]) - first).total_seconds()


def main() -> int:
    """Measure in turn, print the table, write it into RESULTS.md; 1 if the bound is missed."""
    parser = argparse.ArgumentParser(description="Measure Prefect against the process alone.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    alone: list[float] = []
    orchestrated: list[float] = []
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        suite = Path(name) / "cases.jsonl"
        write_cases(suite, options.cases, "same")
        try:
            for _ in range(options.rounds):
                alone.append(execution_s(suite, Path(name) / "alone"))
                orchestrated.append(execution_s(suite, Path(name) / "prefect", "--prefect"))
                print(f"{alone[-1]:.2f} s, {orchestrated[-1]:.2f} s", file=sys.stderr)
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 1
    bare, through = statistics.median(alone), statistics.median(orchestrated)
    ratio = through / bare
    missed = f"{ratio:.2f}× > {BOUND:g}×" if ratio > BOUND else ""
    cells = (f"{options.cases} given outputs", f"{bare:.2f}", f"{through:.2f}", f"{ratio:.2f}×")
    header = ("what", "alone (s)", "through Prefect (s)", "ratio", "bound")
    text = table(header, [Row((*cells, f"{BOUND:g}×"), missed)])
    print(text)
    about = f"median of {options.rounds} each in turn, {machine()}"
    command = "uv run python -m benchmarks.orchestration"
    write_section("orchestration", f"## Through Prefect\n\n`{command}`, {about}.\n\n{text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
