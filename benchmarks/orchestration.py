"""How much longer the same shards take through Prefect than without it, in as many processes.

    uv run python -m benchmarks.orchestration [--cases N] [--rounds N]

Measured from taking the run's lease to the last shard's commit; start-up of the orchestrator
is not part of it. Dask and Ray need their extras. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import (
    EVALCORE,
    CommandFailedError,
    Row,
    execution_times,
    machine,
    run_measured,
    table,
    write_section,
)
from benchmarks.throughput import write_cases

ALONE, TWO = ("--workers", "1"), ("--workers", "2")
# What, with which flags, with which flags without Prefect, the bound of the ratio.
WAYS = (
    ("threads", ("--prefect",), ALONE, 1.2),
    ("Dask, two processes", ("--prefect", "--runner", "dask", *TWO), TWO, 1.4),
    ("Ray, two processes", ("--prefect", "--runner", "ray", *TWO), TWO, 1.4),
)


def execution_s(suite: Path, store: Path, *flags: str) -> float:
    """Run the suite; return the seconds from taking the lease to the last commit."""
    shutil.rmtree(store, ignore_errors=True)
    run_measured([EVALCORE, "run", str(suite), "--store", str(store), *flags])
    first, last = execution_times(store)
    return last - first


def main() -> int:
    """Measure in turn, print the table, write it into RESULTS.md; 1 if the bound is missed."""
    parser = argparse.ArgumentParser(description="Measure Prefect against the process alone.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        suite = Path(name) / "cases.jsonl"
        write_cases(suite, options.cases, "same")
        try:
            for _ in range(options.rounds):
                for flags in (ALONE, TWO, *(way[1] for way in WAYS)):
                    measured[flags].append(execution_s(suite, Path(name) / "store", *flags))
                    print(f"{measured[flags][-1]:.2f} s {' '.join(flags)}", file=sys.stderr)
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 1
    rows = []
    for what, flags, others, bound in WAYS:
        bare, through = (statistics.median(measured[each]) for each in (others, flags))
        ratio = through / bare
        missed = f"{ratio:.2f}× > {bound:g}×" if ratio > bound else ""
        cells = (what, f"{bare:.2f}", f"{through:.2f}", f"{ratio:.2f}×", f"{bound:g}×")
        rows.append(Row(cells, missed))
    header = (f"{options.cases} given outputs", "without (s)", "Prefect (s)", "ratio", "bound")
    text = table(header, rows)
    print(text)
    about = f"median of {options.rounds} each in turn, {machine()}"
    command = "uv run python -m benchmarks.orchestration"
    write_section("orchestration", f"## Through Prefect\n\n`{command}`, {about}.\n\n{text}")
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
