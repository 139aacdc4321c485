"""How many requests a store on S3 gets, and how much slower it is than a folder.

    uv run python -m benchmarks.requests_to_s3 [--items N …] [--rounds N] [--parts]

The same command is timed with a folder, with SeaweedFS, and with SeaweedFS behind a proxy
(benchmarks/counting_proxy.py) that adds 50 ms to each request. Then each way of executing is run
through the proxy, which counts requests. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

from benchmarks.counting_proxy import CountingProxy, Traffic, counting_proxy
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
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.servers import BUCKET, s3_server

BOUND = 1.2
DELAYED_BOUND = 1.5
DELAY_S = 0.05
# All workers but one wait for the last shard.
SLOWEST_S = 60
WAITING_ITEMS = 90
KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE")


class Step(NamedTuple):
    """One command against S3: its seconds and what it asked of the server."""

    what: str
    items: int
    seconds: float
    traffic: Traffic


def write_replayed(path: Path, items: int) -> None:
    """Write a suite whose target is a mock, so that its answers are recorded."""
    path.write_text(
        "name: recorded\n"
        "targets: [{name: quick, provider: mock, response: hello}]\n"
        "execution: {target: quick}\n"
        "assertions: [{type: contains, value: hello}]\n"
        "tests: recorded-cases.jsonl\n"
    )
    lines = (json.dumps({"id": f"c{n}", "input": f"x{n}"}) for n in range(items))
    (path.parent / "recorded-cases.jsonl").write_text("\n".join(lines))


def write_waiting(path: Path, items: int) -> None:
    """Write a suite whose last item takes `SLOWEST_S`, and all others no time."""
    (path.parent / "waiting_target.py").write_text(
        "import asyncio\n\n\n"
        "async def answer(question):\n"
        f"    await asyncio.sleep({SLOWEST_S} if question == 'x{items - 1}' else 0)\n"
        "    return 'hello'\n"
    )
    path.write_text(
        "name: waiting\n"
        "targets: [{name: mine, provider: python, callable: 'waiting_target:answer', "
        "isolation: inline}]\n"
        "execution: {target: mine}\n"
        "assertions: [{type: contains, value: hello}]\n"
        "tests: waiting-cases.jsonl\n"
    )
    lines = (json.dumps({"id": f"c{n}", "input": f"x{n}"}) for n in range(items))
    (path.parent / "waiting-cases.jsonl").write_text("\n".join(lines))


class Steps:
    """Runs commands against a store and notes what each of them asked."""

    def __init__(self, proxy: CountingProxy, store: str) -> None:
        self._proxy, self.store = proxy, store
        self.done: list[Step] = []

    def run(self, what: str, items: int, *command: str) -> None:
        """Run a command of evalcore."""
        self._proxy.reset()
        seconds = run_measured([EVALCORE, *command, "--store", self.store]).seconds
        self.done.append(Step(what, items, seconds, self._proxy.traffic))

    def newest(self) -> str:
        """Return the id of the newest run."""
        return next(iter(list_runs(open_store(self.store)))).id


def count_requests(proxy: CountingProxy, folder: Path, sizes: Sequence[int]) -> list[Step]:
    """Run every way; return what each asked of the server."""
    steps = Steps(proxy, f"s3://{BUCKET}/{uuid4().hex}")
    for items in sizes:
        suite = folder / f"cases-{items}.jsonl"
        write_cases(suite, items, "same")
        steps.run("run, one process", items, "run", str(suite))
        first = steps.newest()
        steps.run("report", items, "report", first)
        steps.run("run --workers 2", items, "run", str(suite), "--workers", "2")
        steps.run("compare", items, "compare", first, steps.newest())
        steps.run("run --resume of a completed run", items, "run", "--resume", first)
    steps.run("history sync of all these runs", 2 * sum(sizes), "history", "sync")
    waiting = folder / "waiting.eval.yaml"
    write_waiting(waiting, WAITING_ITEMS)
    for workers in ("1", "2", "4"):
        what = f"run --workers {workers}, one item of {SLOWEST_S} s"
        steps.run(what, WAITING_ITEMS, "run", str(waiting), "--workers", workers)
    items = sizes[0]
    suite = folder / "recorded.eval.yaml"
    write_replayed(suite, items)
    steps.run("run --mode record, answers at once", items, "run", str(suite), "--mode", "record")
    steps.run("run --mode replay", items, "run", str(suite), "--mode", "replay")
    return steps.done


@contextmanager
def endpoint(url: str) -> Iterator[None]:
    """Let this process and those that it starts reach S3 at `url`."""
    with environment({"AWS_ENDPOINT_URL": url}):
        yield


@contextmanager
def environment(names: Mapping[str, str]) -> Iterator[None]:
    """Set these names for this process and those that it starts."""
    before = dict(os.environ)
    os.environ.update(names)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_s(suite: Path, store: str) -> float:
    """Run the suite; return the seconds of the whole command."""
    return run_measured([EVALCORE, "run", str(suite), "--store", store]).seconds


def compare_stores(
    proxy: CountingProxy, folder: Path, items: int, rounds: int
) -> dict[str, list[float]]:
    """Run the same suite in turn in a folder, on S3, and on S3 with a delay; return seconds.

    Only the delayed requests pass the proxy, which needs a core of its own.
    """
    suite = folder / f"cases-{items}.jsonl"
    if not suite.exists():
        write_cases(suite, items, "same")
    ways: dict[str, list[float]] = {"local": [], "s3": [], "delayed": []}
    for _ in range(rounds):
        shutil.rmtree(folder / "store", ignore_errors=True)
        ways["local"].append(run_s(suite, str(folder / "store")))
        ways["s3"].append(run_s(suite, f"s3://{BUCKET}/{uuid4().hex}"))
        proxy.delay_s = DELAY_S
        with endpoint(proxy.url):
            ways["delayed"].append(run_s(suite, f"s3://{BUCKET}/{uuid4().hex}"))
        proxy.delay_s = 0.0
        print({way: f"{seconds[-1]:.2f} s" for way, seconds in ways.items()}, file=sys.stderr)
    return ways


def request_rows(steps: Sequence[Step]) -> list[Row]:
    """Return the lines of the table of requests, for each 1 000 items."""
    rows = []
    for step in steps:
        thousands = step.items / 1000
        kinds = step.traffic.kinds
        cells = (
            f"{step.what}, {step.items:,}".replace(",", " ").replace("  ", ", "),
            str(step.traffic.requests),
            *(f"{kinds[kind] / thousands:.2f}" for kind in KINDS),
            f"{step.traffic.sent_bytes / 1e3 / thousands:.0f}",
            f"{step.traffic.received_bytes / 1e3 / thousands:.0f}",
        )
        rows.append(Row(cells, ""))
    return rows


def ratio_rows(ways: dict[str, list[float]], items: int) -> list[Row]:
    """Return the lines of the table of times."""
    local = statistics.median(ways["local"])
    rows = []
    names = {"s3": "S3 on this machine", "delayed": f"S3, {DELAY_S * 1000:.0f} ms each request"}
    for way, bound in (("s3", BOUND), ("delayed", DELAYED_BOUND)):
        seconds = statistics.median(ways[way])
        ratio = seconds / local
        missed = f"{ratio:.2f}× > {bound:g}×" if ratio > bound else ""
        cells = (f"{items} given outputs, {names[way]}", f"{local:.2f}", f"{seconds:.2f}")
        rows.append(Row((*cells, f"{ratio:.2f}×", f"{bound:g}×"), missed))
    return rows


def main() -> int:
    """Count, measure in turn, print the tables, write them into RESULTS.md; 1 if one is missed."""
    parser = argparse.ArgumentParser(description="Count the requests to a store on S3.")
    parser.add_argument("--items", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--parts", action="store_true", help="print the requests by part, too")
    parser.add_argument("--dry", action="store_true", help="do not write into RESULTS.md")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    try:
        with (
            TemporaryDirectory(prefix="evalcore-bench-") as name,
            s3_server() as server,
            counting_proxy(server.url) as proxy,
            environment(server.environment | {"AWS_ENDPOINT_URL": server.url}),
        ):
            ways = compare_stores(proxy, Path(name), options.items[-1], options.rounds)
            with endpoint(proxy.url):
                steps = count_requests(proxy, Path(name), options.items)
    except CommandFailedError as error:
        print(error, file=sys.stderr)
        return 1
    if options.parts:
        for step in steps:
            print(step.what, step.items, dict(sorted(step.traffic.parts.items())))
    counted = request_rows(steps)
    header = ("command, items", "requests", *KINDS, "kB sent", "kB received")
    lines = "\n".join(line.rsplit("|", 2)[0] + "|" for line in table(header, counted).split("\n"))
    rows = ratio_rows(ways, options.items[-1])
    times = table(("what", "folder (s)", "S3 (s)", "ratio", "bound"), rows)
    text = (
        "## S3 as the store\n\n`uv run python -m benchmarks.requests_to_s3`, SeaweedFS, "
        f"median of {options.rounds} each in turn, {machine()}, load {load:.1f} "
        "when it began (other work ran beside it). Whole commands.\n\n"
        f"{times}\n\nRequests, and by kind for each 1 000 items:\n\n{lines}"
    )
    print(text)
    if not options.dry:
        write_section("requests-to-s3", text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
