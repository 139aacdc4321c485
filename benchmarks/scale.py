"""Whether a million items take as much memory and ten times as long as a hundred thousand.

    uv run python -m benchmarks.scale [--items N] [--part N]

Given outputs, each case with its own five assertions. Measured: the whole command, its peak memory,
and how long the report and the gates take after the last shard is committed. Exit code 1 if a bound
is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

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
from benchmarks.throughput import LOOP, PARSE_JSONL, write_cases

MEMORY_MB = 700.0
# Of the bare loop over the same cases.
LOOP_RATIO = 3.0
# For ten times as many items.
GROWTH = 11.0
REPORT_S = 60.0


class Scale(NamedTuple):
    """One run: seconds of the whole command, its stages and the bare loop over the same cases.

    Peak in MB (10⁶ bytes).
    """

    items: int
    seconds: float
    load_s: float
    execute_s: float
    end_s: float
    peak_mb: float
    loop_s: float


def run_scale(folder: Path, items: int) -> Scale:
    """Make the data, run the command with a new store, and check that every item passed."""
    suite, store = folder / f"cases-{items}.jsonl", folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    write_cases(suite, items, "own-values")
    began = time.time()
    measured = run_measured([EVALCORE, "run", str(suite), "--store", str(store)])
    ended = time.time()
    loop = LOOP.format(parse=PARSE_JSONL)
    bare = run_measured([sys.executable, "-c", loop, str(suite), str(folder / "results.jsonl")])
    suite.unlink()
    (manifest_path,) = store.glob("runs/*/*/manifest.json")
    manifest = json.loads(manifest_path.read_bytes())
    first, last = execution_times(store)
    shutil.rmtree(store)
    if manifest["counts"]["passed"] != items:
        raise CommandFailedError(f"only {manifest['counts']['passed']} of {items} items passed")
    stages = first - began, last - first, ended - last
    return Scale(items, measured.seconds, *stages, measured.peak_mb, bare.seconds)


def rows_of(part: Scale, whole: Scale) -> list[Row]:
    """Return the lines of the table; the growth is bounded in proportion to the items."""
    rows = []
    factor = whole.items / part.items
    bound = GROWTH / 10 * factor
    for scale in (part, whole):
        growth = scale.seconds / part.seconds
        missed = []
        if scale.peak_mb >= MEMORY_MB:
            missed.append(f"{scale.peak_mb:.0f} MB ≥ {MEMORY_MB:.0f} MB")
        if scale is whole and growth > bound:
            missed.append(f"{growth:.2f}× > {bound:g}×")
        ratio = scale.seconds / scale.loop_s
        if scale is whole and ratio > LOOP_RATIO:
            missed.append(f"{ratio:.2f}× > {LOOP_RATIO:g}× the loop")
        if scale.end_s >= REPORT_S:
            missed.append(f"{scale.end_s:.0f} s ≥ {REPORT_S:.0f} s")
        cells = (
            f"{scale.items:,}".replace(",", " "),
            *(f"{seconds:.1f}" for seconds in scale[1:4]),
            f"{scale.end_s:.1f} (< {REPORT_S:.0f})",
            f"{scale.loop_s:.1f}",
            f"{ratio:.2f}×" + (f" (≤ {LOOP_RATIO:g}×)" if scale is whole else ""),
            f"{growth:.2f}×" + (f" (≤ {bound:g}×)" if scale is whole else ""),
            f"{scale.peak_mb:.0f} MB (< {MEMORY_MB:.0f})",
        )
        rows.append(Row(cells, ", ".join(missed)))
    return rows


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure a run of a million items.")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--part", type=int, default=100_000, help="what it is compared with")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        try:
            part = run_scale(Path(name), options.part)
            whole = run_scale(Path(name), options.items)
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 1
    rows = rows_of(part, whole)
    header = (
        *("items", "whole command (s)", "load and plan (s)", "execute (s)"),
        *("report and gates (s)", "bare loop (s)", "ratio", "growth", "peak memory"),
    )
    text = table(header, rows)
    print(text)
    about = (
        "## A million items\n\n`uv run python -m benchmarks.scale`, JSONL, given outputs of 400 "
        f"characters, five assertions of its own in each case, one run each, {machine()}.\n\n"
    )
    write_section("scale", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
