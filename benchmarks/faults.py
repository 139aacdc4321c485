"""What runs survive: kills at random moments, and stores that fail.

    uv run python -m benchmarks.faults [--kills N] [--store-faults N] [--ways NAME,…] [--seed N]

A try is a run of 120 items of 30 ms. It is killed up to three times (SIGKILL, SIGTERM, SIGINT; the
command or one of its workers) and resumed, or its store (SeaweedFS behind a proxy) answers up to a
tenth of all requests with 500 or 503, late, or not at all although it has done what was asked. It
survives if it ends and its report is that of an undisturbed run. The tries are spread over the
ways: a single process, `--workers 2`, Prefect's tasks, and lanes of a Prefect worker. Exit code 1
if one does not survive.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from subprocess import DEVNULL, TimeoutExpired
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.fault_runs import (
    LANES,
    WAYS,
    WORKER,
    Case,
    faults,
    survive_kills,
    survive_store_faults,
    write_suite,
)
from benchmarks.measure import EVALCORE, Row, machine, table, write_section
from tests.support.prefect_server import clean_environment, prefect_server
from tests.support.servers import BUCKET, FaultyProxy, faulty_proxy, s3_server

_LARGEST_SHARE = 0.1
_WORKER_ENDS_S = 30


class Site(NamedTuple):
    """Where tries are made: a folder, and the undisturbed report of each way with its seconds."""

    folder: Path
    whole: dict[str, tuple[bytes, float]]
    seed: int

    def case(self, kind: str, number: int, way: str, store: str | None = None) -> Case:
        """Return a try in a folder of its own."""
        folder = self.folder / f"{kind}-{number}"
        folder.mkdir()
        whole, whole_s = self.whole.get(way, (b"", 0.0))
        random = Random(f"{self.seed} {kind} {number}")
        return Case(
            write_suite(folder), store or str(folder / "store"), way, random, whole, whole_s
        )


@contextmanager
def servers(ways: Sequence[str], stores: int) -> Iterator[FaultyProxy | None]:
    """Run the Prefect server and the object store that the tries need."""
    with ExitStack() as stack:
        if {"tasks", LANES} & set(ways):
            home = Path(stack.enter_context(TemporaryDirectory(prefix="evalcore-prefect-")))
            os.environ |= clean_environment(home)
            os.environ |= stack.enter_context(prefect_server(home)).environment
        if not stores:
            yield None
            return
        s3 = stack.enter_context(s3_server())
        proxy = stack.enter_context(faulty_proxy(s3.url))
        os.environ |= s3.environment | {"AWS_ENDPOINT_URL": proxy.url}
        yield proxy


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    """Deploy the flows and run a worker of Prefect in a folder, for lanes."""
    more = {
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "EVALCORE_ALLOW_STORES": f"{folder},s3://{BUCKET}",
        "EVALCORE_LEASE_S": "2",
    }
    environment = os.environ | more
    subprocess.run([EVALCORE, "deploy"], cwd=folder, env=environment, check=True, stdout=DEVNULL)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "evalcore"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    os.environ[WORKER] = str(process.pid)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_WORKER_ENDS_S)
        except TimeoutExpired:  # it waits for a server that is busy
            process.kill()
            process.wait()


def undisturbed(site: Site, way: str) -> None:
    """Run without any fault, for what all tries of a way are compared with."""
    case = site.case(f"whole-{way.replace(' ', '-')}", 0, way)
    began = time.monotonic()
    ended = case.end(case.start())
    report = ended.report
    if ended.code != 1 or report is None:
        raise SystemExit(f"{way}: an undisturbed run ended with {ended.code}: {ended.err}")
    site.whole[way] = (report, time.monotonic() - began)


def try_kill(site: Site, way: str, number: int) -> str:
    """Make one try with kills; return what is wrong."""
    return survive_kills(site.case("kill", number, way))


def try_store(site: Site, proxy: FaultyProxy, way: str, number: int) -> str:
    """Make one try with a store that fails; return what is wrong."""
    case = site.case("store", number, way, f"s3://{BUCKET}/try-{site.seed}-{number}")
    random, share = case.random, case.random.uniform(0.01, _LARGEST_SHARE)
    proxy.rule = lambda _method, _path: faults(random, share)
    try:
        return survive_store_faults(case)
    finally:
        proxy.rule = lambda _method, _path: None


def tries(
    ways: Sequence[str], count: int, attempt: Callable[[str, int], str]
) -> dict[str, tuple[int, int]]:
    """Make so many tries, the ways in turn; return for each how many and how many survived."""
    tries_by_way = dict.fromkeys(ways, (0, 0))
    for number in range(count):
        way = ways[number % len(ways)]
        wrong = attempt(way, number)
        if wrong:
            print(f"{way}, try {number}: {wrong}", file=sys.stderr)
        tries, survived = tries_by_way[way]
        tries_by_way[way] = (tries + 1, survived + (not wrong))
    return tries_by_way


def rows_of(kind: str, tries_by_way: dict[str, tuple[int, int]]) -> list[Row]:
    """Return the lines of the table."""
    return [
        Row(
            (kind, way, f"{tries}", f"{survived}"),
            "" if tries == survived else f"{tries - survived} lost",
        )
        for way, (tries, survived) in tries_by_way.items()
        if tries
    ]


def main() -> int:
    """Make the tries, print the table, write it into RESULTS.md; 1 if one did not survive."""
    parser = argparse.ArgumentParser(description="Kill runs and spoil their stores.")
    parser.add_argument("--kills", type=int, default=300, help="tries with kills")
    parser.add_argument("--store-faults", type=int, default=300, help="tries with a failing store")
    parser.add_argument("--ways", default=",".join(WAYS), help="of: " + ", ".join(WAYS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    ways = [way.strip() for way in options.ways.split(",")]
    with (
        TemporaryDirectory(prefix="evalcore-bench-") as name,
        servers(ways, options.store_faults) as proxy,
        ExitStack() as stack,
    ):
        site = Site(Path(name), {}, options.seed)
        stack.enter_context(worker(site.folder) if LANES in ways else ExitStack())
        for way in ways:
            undisturbed(site, way)
        rows = rows_of("kills", tries(ways, options.kills, partial(try_kill, site)))
        if proxy is not None:
            attempt = partial(try_store, site, proxy)
            rows += rows_of("store faults", tries(ways, options.store_faults, attempt))
    text = table(("what", "way", "tries", "survived"), rows)
    print(text)
    about = (
        f"## Faults\n\n`uv run python -m benchmarks.faults --seed {options.seed}`, 120 items of "
        f"30 ms, compared with the undisturbed report, {machine()}.\n\n"
    )
    if not options.dry:
        write_section("faults", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
