"""How worker processes share a run: two against one, and one against the time that it must take.

    uv run python -m benchmarks.lanes [--rounds N]

2 000 items of 200 ms, 20 at once in each worker; measured from the first claim to the last commit,
as the manifest records them. One worker may take 1.1× its ideal of 20 s, two 0.52 of that one, and
a lane 1.05× the same run without any (in one process). Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
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

ITEMS = 2_000
LATENCY_MS = 200
AT_ONCE = 20
IDEAL_S = ITEMS / AT_ONCE * LATENCY_MS / 1000
ONE_BOUND = 1.1
TWO_BOUND = 0.52
OVERHEAD_BOUND = 1.05


def write_suite(folder: Path) -> Path:
    """Write the suite: a target that answers after the latency."""
    target = f"{{name: slow, provider: mock, response: hello, latency_ms: {LATENCY_MS}}}"
    (folder / "lanes.eval.yaml").write_text(
        "name: lanes\n"
        f"targets: [{target}]\n"
        f"execution: {{target: slow, workers: {AT_ONCE}}}\n"
        "assertions: [{type: contains, value: hello}]\n"
        "tests: cases.jsonl\n"
    )
    lines = (json.dumps({"id": f"c{number}", "input": "x"}) for number in range(ITEMS))
    (folder / "cases.jsonl").write_text("\n".join(lines))
    return folder / "lanes.eval.yaml"


def execution_s(suite: Path, store: Path, flags: Sequence[str]) -> float:
    """Run the suite with a new store; return the seconds from first claim to last commit."""
    shutil.rmtree(store, ignore_errors=True)
    run_measured([EVALCORE, "run", str(suite), "--store", str(store), *flags])
    (manifest,) = store.glob("runs/*/*/manifest.json")
    whole = json.loads(manifest.read_bytes())
    if whole["counts"]["passed"] != ITEMS:
        raise CommandFailedError(f"only {whole['counts']['passed']} of {ITEMS} items passed")
    facts = whole["execution"]
    first = datetime.fromisoformat(facts["first_shard_started_at"])
    return (datetime.fromisoformat(facts["last_shard_committed_at"]) - first).total_seconds()


def rows_of(alone_s: float, one_s: float, two_s: float) -> list[Row]:
    """Return the lines of the table."""
    compared = (
        ("one worker, ideal", one_s, IDEAL_S, ONE_BOUND),
        ("two workers, one worker", two_s, one_s, TWO_BOUND),
        ("one worker, no workers", one_s, alone_s, OVERHEAD_BOUND),
    )
    rows = []
    for what, measured, reference, bound in compared:
        ratio = measured / reference
        missed = f"{ratio:.3f}× > {bound:g}×" if ratio > bound else ""
        cells = (what, f"{measured:.2f}", f"{reference:.2f}", f"{ratio:.3f}×", f"{bound:g}×")
        rows.append(Row(cells, missed))
    return rows


def main() -> int:
    """Measure in turn, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure workers that share a run.")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    ways: dict[str, list[float]] = {"": [], "1": [], "2": []}
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        suite = write_suite(Path(name))
        try:
            for _ in range(options.rounds):
                for workers, durations_s in ways.items():
                    flags = ("--workers", workers) if workers else ()
                    durations_s.append(execution_s(suite, Path(name) / "store", flags))
                print(
                    ", ".join(f"{durations_s[-1]:.2f} s" for durations_s in ways.values()),
                    file=sys.stderr,
                )
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 1
    alone_s, one_s, two_s = (statistics.median(durations_s) for durations_s in ways.values())
    rows = rows_of(alone_s, one_s, two_s)
    text = table(("what, compared with", "measured (s)", "that (s)", "ratio", "bound"), rows)
    print(text)
    about = (
        f"## Lanes\n\n`uv run python -m benchmarks.lanes`, {ITEMS} items of {LATENCY_MS} ms, "
        f"{AT_ONCE} at once in each worker, first claim to last commit, median of "
        f"{options.rounds}, {machine()}.\n\n"
    )
    write_section("lanes", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
