"""How much slower or quicker this checkout is than an earlier one, measured in turn in one run.

    uv run python -m benchmarks.engine_ratio --old PATH/.venv/bin/evalcore [--only NAME,…]

The old checkout: `git worktree add ../old COMMIT && cd ../old && uv sync --locked`. Old and new run
in turn, so that a machine that is busy for a while slows both; the medians are compared. Start (one
case), latency (calls of 200 ms, 20 at once), throughput and scale (given outputs as JSON lines),
two workers (calls of 200 ms, 10 at once in each process), and given outputs beside the quickest
other program of `benchmarks.peers`. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.latency import LATENCY_S, model_server, write_suite
from benchmarks.measure import (
    EVALCORE,
    CommandFailedError,
    Measured,
    Row,
    in_turn,
    machine,
    run_measured,
    table,
    write_section,
)
from benchmarks.peer_work import FIXTURES, Work, write_work
from benchmarks.peers import CACHE, CONCURRENCY, OURS, PEERS, install
from benchmarks.peers import measure as measure_peer
from benchmarks.startup import ONE_CASE
from benchmarks.throughput import write_cases

QUICKEST_PEER = "pydantic-evals"
PEER_CASES, PEER_FACTOR = 10_000, 5.0
TWO_OF_ONE = 0.56


class Site(NamedTuple):
    """Where is measured, the two programs, and how often."""

    folder: Path
    url: str
    old: str
    rounds: int
    scale: int

    def run(self, program: str, suite: Path, items: int, *flags: str) -> Measured:
        """Measure a whole command with a new store; every item must pass."""
        store = self.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        measured = run_measured([program, "run", str(suite), "--store", str(store), *flags])
        (manifest,) = store.glob("runs/*/*/manifest.json")
        passed = json.loads(manifest.read_bytes())["counts"]["passed"]
        if passed != items:
            raise CommandFailedError(f"{program}: only {passed} of {items} items passed")
        return measured

    def compare(self, what: str, suite: Path, items: int, bound: float, *flags: str) -> Row:
        """Return the line of a workload that both programs execute."""
        old, new = in_turn(
            partial(self.run, self.old, suite, items, *flags),
            partial(self.run, EVALCORE, suite, items, *flags),
            rounds=self.rounds,
        )
        return row_of(what, old, new, bound)


def row_of(what: str, before: Measured, after: Measured, bound: float) -> Row:
    """Return the line of two measurements; `bound` is the largest ratio."""
    ratio = after.seconds / before.seconds
    cells = (
        what,
        f"{before.seconds:.2f}",
        f"{after.seconds:.2f}",
        f"{ratio:.3g}×",
        f"{bound:g}×",
        f"{before.peak_mb:.0f} → {after.peak_mb:.0f} MB",
    )
    return Row(cells, "" if ratio <= bound else f"{ratio:.3g}× > {bound:g}×")


def start(site: Site) -> Iterator[Row]:
    """Compare a suite of one case."""
    suite = site.folder / "one.eval.yaml"
    suite.write_text(ONE_CASE, "utf-8")
    yield site.compare("start: one case", suite, 1, 1.5)


def latency(site: Site) -> Iterator[Row]:
    """Compare calls that wait."""
    suite = site.folder / "latency.eval.yaml"
    write_suite(suite, site.url, 200)
    what = f"latency: 200 calls of {LATENCY_S * 1000:.0f} ms, 20 at once"
    yield site.compare(what, suite, 200, 1.3, "--concurrency", "20")


def given(site: Site, name: str, items: int, bound: float) -> Iterator[Row]:
    """Compare given outputs."""
    suite = site.folder / f"given-{items}.jsonl"
    write_cases(suite, items, "own-values")
    what = f"{name}: {items:,} given outputs".replace(",", " ")
    yield site.compare(what, suite, items, bound)
    suite.unlink()


def throughput(site: Site) -> Iterator[Row]:
    """Compare a hundred thousand given outputs."""
    return given(site, "throughput", 100_000, 1.5)


def scale(site: Site) -> Iterator[Row]:
    """Compare as many given outputs as `--scale` says."""
    return given(site, "scale", site.scale, 1.3)


def workers(site: Site) -> Iterator[Row]:
    """Compare two processes with those of the old program, and with one process."""
    suite, calls = site.folder / "workers.eval.yaml", 1_000
    write_suite(suite, site.url, calls)
    ten = ("--concurrency", "10")
    old, two, one = in_turn(
        partial(site.run, site.old, suite, calls, *ten, "--workers", "2"),
        partial(site.run, EVALCORE, suite, calls, *ten, "--workers", "2"),
        partial(site.run, EVALCORE, suite, calls, *ten, "--workers", "1"),
        rounds=site.rounds,
    )
    what = f"two workers: {calls} calls of {LATENCY_S * 1000:.0f} ms, 10 at once in each"
    yield row_of(what, old, two, 1.3)
    yield row_of("two workers instead of one, this checkout", one, two, TWO_OF_ONE)


def peer(site: Site) -> Iterator[Row]:
    """Compare given outputs with the quickest other program."""
    other = next(each for each in PEERS if each.name == QUICKEST_PEER)
    CACHE.mkdir(parents=True, exist_ok=True)
    home, version = install(other)
    work = Work(FIXTURES, PEER_CASES, site.folder, site.url, CONCURRENCY)
    write_work(work)
    seconds: dict[str, list[float]] = {OURS.name: [], other.name: []}
    peaks: dict[str, float] = {}
    for _ in range(site.rounds):
        for each in (OURS, other):
            shutil.rmtree(site.folder / "evalcore-store", ignore_errors=True)
            outcome = measure_peer(each, work, home, version, 600.0)
            if outcome.seconds is None:
                raise CommandFailedError(f"{each.name}: {outcome.why}")
            seconds[each.name].append(outcome.seconds)
            peaks[each.name] = max(peaks.get(each.name, 0.0), outcome.peak_mb)
    theirs, ours = (
        Measured(median(seconds[each.name]), peaks[each.name]) for each in (other, OURS)
    )
    what = f"{PEER_CASES} given outputs, {other.name} {version} → this checkout"
    yield row_of(what, theirs, ours, 1 / PEER_FACTOR)


WORKS: dict[str, Callable[[Site], Iterator[Row]]] = {
    "start": start,
    "latency": latency,
    "throughput": throughput,
    "scale": scale,
    "workers": workers,
    "peer": peer,
}


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure this checkout beside an earlier one.")
    parser.add_argument("--old", required=True, help="the `evalcore` of the earlier checkout")
    parser.add_argument("--only", default=",".join(WORKS), help="of: " + ", ".join(WORKS))
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--scale", type=int, default=1_000_000, help="items of `scale`")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    names = [name.strip() for name in options.only.split(",")]
    if unknown := set(names) - set(WORKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(WORKS)}")
    rows: list[Row] = []
    with TemporaryDirectory(prefix="evalcore-bench-") as folder, model_server() as url:
        site = Site(Path(folder), url, options.old, options.rounds, options.scale)
        for name in names:
            try:
                for row in WORKS[name](site):
                    rows.append(row)
                    print(" | ".join((*row.cells, row.verdict)), file=sys.stderr, flush=True)
            except CommandFailedError as error:
                print(error, file=sys.stderr)
                rows.append(Row((name, "–", "–", "–", "–", "–"), "a command failed"))
    text = table(("what", "before (s)", "now (s)", "ratio", "bound", "peak memory"), rows)
    print(text)
    about = (
        "## This engine and the one before it\n\n`uv run python -m benchmarks.engine_ratio`, old "
        f"and new in turn, median of {options.rounds}, {machine()}.\n\n"
    )
    if not options.dry:
        write_section("engine-ratio", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
