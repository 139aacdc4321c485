"""Whether every page of the viewer is answered within its bounds.

    uv run python -m benchmarks.viewer [--runs N] [--cases N] [--items N] [--rounds N] [--store DIR]

A store of many runs of one suite and one large run of another; `evalcore view` is a process of its
own. Measured over HTTP: the first answer of each page, the 95th percentile of the others, the
uncompressed size, and the process's largest memory. With `--store` a store is kept and used again.
Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from urllib.parse import quote

import httpx

from benchmarks.measure import EVALCORE, Row, machine, run_measured, table, write_section
from benchmarks.stored_runs import copy_run, make_run
from benchmarks.throughput import write_cases

PAGE_MS: Final = 300.0
PAGE_KB: Final = 300.0
MEMORY_MB: Final = 400.0
_READY_S: Final = 60.0
_LARGE: Final = "large"


class Page(NamedTuple):
    """A page: its name, its address in a round, whether it is a chart (whose size has no bound)."""

    name: str
    address: Callable[[int], str]
    is_chart: bool = False


def make_store(folder: Path, runs: int, cases: int, items: int) -> None:
    """Make `folder/store`, its history included."""
    first = make_run(folder, cases)
    for number in range(runs - 1):
        copy_run(first, number)
    suite = folder / f"{_LARGE}.jsonl"
    write_cases(suite, items, "own-values")
    run_measured([EVALCORE, "run", str(suite), "--store", str(folder / "store")])
    run_measured([EVALCORE, "history", "sync", "--store", str(folder / "store")])


def pages(store: Path) -> list[Page]:
    """Return the pages that are measured, with the newest runs of the store."""
    large = max((store / "runs" / _LARGE).iterdir()).name
    nightly = max((store / "runs" / "nightly").iterdir()).name
    run = f"/runs/{large}"
    orders = ("plan", "worst", "score", "latency", "cost")
    outcomes = ("failed", "passed")
    trend = "/suites/nightly/trend"

    def case(number: int) -> str:
        return f"{run}/cases/{quote(f'case-{number * 37}')}"

    return [
        Page("all suites", lambda _: "/"),
        Page("suite of many runs", lambda _: "/suites/nightly"),
        Page("suite, filtered", lambda n: f"/suites/nightly?outcome={('pass', 'fail')[n % 2]}"),
        Page("suite, trend as picture", lambda _: f"{trend}.svg", is_chart=True),
        Page("suite, trend as chart", lambda _: f"{trend}.json", is_chart=True),
        Page("small run", lambda _: f"/runs/{nightly}"),
        Page("large run", lambda _: run),
        Page("large run, ordered", lambda n: f"{run}?order={orders[n % len(orders)]}"),
        Page("large run, by outcome", lambda n: f"{run}?outcome={outcomes[n % 2]}"),
        Page("large run, searched", lambda n: f"{run}?q=case-{n}"),
        Page("large run, far page", lambda n: f"{run}?order=plan&after=0.0~{n * 4_000}"),
        Page("large run, assertions", lambda _: f"{run}/assertions"),
        Page("case of a large run", case),
        Page("large run, compared", lambda _: f"/compare?a={large}&b={large}"),
    ]


@contextmanager
def serving(store: Path) -> Iterator[tuple[httpx.Client, int]]:
    """Run `evalcore view`; give a client of it and the id of its process."""
    command = [EVALCORE, "view", str(store), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = re.search(r"http://\S+", process.stderr.readline())
        assert address is not None
        try:
            with httpx.Client(base_url=address[0], timeout=_READY_S) as client:
                yield client, process.pid
        finally:
            process.terminate()


def measure(client: httpx.Client, page: Page, rounds: int) -> Row:
    """Return the line of one page."""
    times, largest = [], 0
    for number in range(rounds + 1):
        began = time.perf_counter()
        answer = client.get(page.address(number))
        while answer.status_code == HTTPStatus.ACCEPTED:  # what it shows is being prepared
            answer = client.get(page.address(number))
        times.append((time.perf_counter() - began) * 1_000)
        answer.raise_for_status()
        largest = max(largest, len(answer.content))
    first, p95 = times[0], quantiles(times[1:], n=20, method="inclusive")[-1]
    missed = []
    if p95 > PAGE_MS:
        missed.append(f"{p95:.0f} ms > {PAGE_MS:.0f} ms")
    if not page.is_chart and largest / 1_000 > PAGE_KB:
        missed.append(f"{largest / 1_000:.0f} kB > {PAGE_KB:.0f} kB")
    cells = (page.name, f"{first:.0f}", f"{p95:.0f}", f"{largest / 1_000:.0f}")
    return Row(cells, ", ".join(missed))


def peak_mb(process: int) -> float:
    """Return the largest memory of a process (Linux)."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1_024 / 1e6


def measure_all(store: Path, rounds: int) -> list[Row]:
    """Return the lines of all pages, and of the memory after them."""
    with serving(store) as (client, process):
        rows = []
        for page in pages(store):
            rows.append(measure(client, page, rounds))
            print(rows[-1], f"{peak_mb(process):.0f} MB")
        peak = peak_mb(process)
    missed = f"{peak:.0f} MB > {MEMORY_MB:.0f} MB" if peak > MEMORY_MB else ""
    return [*rows, Row(("memory of the process, MB", "", f"{peak:.0f}", ""), missed)]


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure the pages of the viewer.")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        folder = options.store or Path(name)
        if not (folder / "store").exists():
            folder.mkdir(exist_ok=True)
            make_store(folder, options.runs, options.cases, options.items)
        load = os.getloadavg()[0]
        rows = measure_all(folder / "store", options.rounds)
    text = table(("page", "first (ms)", "p95 (ms)", "kB"), rows)
    print(text)
    about = (
        f"## The viewer\n\n`uv run python -m benchmarks.viewer`, {options.runs:,} runs of a suite "
        f"of {options.cases} cases and a run of {options.items:,} items, {options.rounds} requests "
        f"of each page after the first, {machine()}, load {load:.1f} when it began. Bounds: p95 "
        f"{PAGE_MS:.0f} ms, {PAGE_KB:.0f} kB without charts, {MEMORY_MB:.0f} MB. The first answer "
        "of a run opens it; until then pages say so, within 0.3 s.\n\n"
    )
    write_section("viewer", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
