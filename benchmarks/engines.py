"""The same shards by lanes, by a Dask cluster and by a Ray cluster, two processes each.

    uv run --extra dask --extra ray python -m benchmarks.engines [--rounds N] [--only WORK,…]

Lanes are `evalcore run --workers 2`; Dask and Ray are `--prefect --runner dask|ray --workers 2`
against a Prefect server that the benchmark starts. Each run is planned as its command would plan
it: a shard of given outputs that is a task run has up to 12 500 of them, others 5 000. Measured
from the first shard's start to the last shard's commit, as the manifest records them, and the whole
command besides. The bounds are those of issue 18: Dask and Ray within 1.2× of lanes on 100 000
given outputs, Prefect's threads within 1.05× of one process. The other works have no bound: they
are what the comparison is about. Exit code 1 if a bound
is missed, or a run did not come to the results of all its items.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.measure import EVALCORE, ROOT, Row, machine, table, write_section
from benchmarks.throughput import write_cases
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.storage.local import LocalStore

PROCESSES = 2
WAYS: Mapping[str, tuple[str, ...]] = {
    "lanes": ("--workers", "2"),
    "dask": ("--prefect", "--runner", "dask", "--workers", "2"),
    "ray": ("--prefect", "--runner", "ray", "--workers", "2"),
}
ALONE: Mapping[str, tuple[str, ...]] = {"alone": (), "threads": ("--prefect",)}
CLUSTER_BOUND = 1.2
THREADS_BOUND = 1.05
_PATIENCE_S = 500.0

# The process that calls first is `slow` times as slow; each notes its calls.
TARGET = """\
import asyncio, os
from pathlib import Path

FOLDER = Path(__file__).parent


def delay_s():
    if {slow} == 1:
        return {latency_s}
    try:
        with (FOLDER / "slow").open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        pass
    return {latency_s} * ({slow} if (FOLDER / "slow").read_text() == str(os.getpid()) else 1)


async def answer(question):
    with (FOLDER / "calls" / str(os.getpid())).open("a") as file:
        file.write("x")
    await asyncio.sleep(delay_s())
    return "hello"
"""
SUITE = """\
name: engines
targets: [{name: mine, provider: python, callable: 'engines_target:answer', isolation: inline}]
execution: {target: mine, workers: 20}
assertions: [{type: contains, value: hello}]
tests: cases.jsonl
"""


class Work(NamedTuple):
    """What is executed: given outputs, or calls of `latency_s`, 20 at once in a process.

    `slow` is how many times as long the calls of one process take, `kills` says that a process is
    killed when a third was called, `workers` for how many processes the plan is cut.
    """

    title: str
    items: int
    latency_s: float = 0.0
    slow: int = 1
    kills: bool = False
    workers: int = PROCESSES
    ways: Mapping[str, tuple[str, ...]] = WAYS
    bound: float | None = None


WORKS: Mapping[str, Work] = {
    "threads": Work("100 000 given outputs", 100_000, ways=ALONE, bound=THREADS_BOUND),
    "many": Work("100 000 given outputs", 100_000, bound=CLUSTER_BOUND),
    "fixtures": Work("20 000 given outputs", 20_000),
    "waiting": Work("600 × 200 ms", 600, 0.2),
    "killed": Work("600 × 200 ms, one process killed", 600, 0.2, kills=True),
    "slow": Work("600 × 200 ms, one process 5× as slow", 600, 0.2, slow=5),
    "shards": Work("1 600 × 10 ms in 200 shards", 1_600, 0.01, workers=49),
}


class Execution(NamedTuple):
    """One run: seconds of its shards and of the whole command, items that were called again.

    `cpu_s` are the processor seconds of the command and of the processes that it has waited for:
    those of lanes and of Dask's workers, of Ray's none.
    """

    shards_s: float
    command_s: float
    cpu_s: float
    repeated: int
    shards: int


class RunFailedError(Exception):
    """A run did not come to the results of all its items."""


def write_work(work: Work, folder: Path) -> Path:
    """Write a work's suite into a folder of its own; return its path."""
    folder.mkdir()
    if not work.latency_s:
        write_cases(folder / "cases.jsonl", work.items, "same")
        return folder / "cases.jsonl"
    (folder / "engines_target.py").write_text(
        TARGET.format(slow=work.slow, latency_s=work.latency_s)
    )
    (folder / "engines.eval.yaml").write_text(SUITE)
    lines = (json.dumps({"id": f"c{number}", "input": "x"}) for number in range(work.items))
    (folder / "cases.jsonl").write_text("\n".join(lines))
    return folder / "engines.eval.yaml"


def execute(work: Work, suite: Path, flags: Sequence[str]) -> Execution:
    """Plan and execute the work in a new store. Raises `RunFailedError`."""
    options = PlanOptions(workers=work.workers, single_items="--prefect" in flags)
    folder = suite.parent
    for name in ("store", "calls"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "slow").unlink(missing_ok=True)
    (folder / "calls").mkdir()
    store = LocalStore(folder / "store")
    run = plan_run(load(suite), store, options, now=datetime.now(UTC))
    command = [EVALCORE, "run", "--resume", run.run_id, "--store", store.url, *flags]
    began = time.perf_counter()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=suite.parent, env=environment()
        )
        if work.kills:
            kill_first(folder / "calls", work.items // 3)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
    command_s = time.perf_counter() - began
    manifest = run.manifest()
    if code != 0 or (manifest.counts or {}).get("passed") != work.items:
        output = (folder / "log").read_text("utf-8", "replace")[-2000:]
        raise RunFailedError(f"{' '.join(command)}: exit code {code}\n{output}")
    facts = manifest.execution
    first = datetime.fromisoformat(facts["first_shard_started_at"])
    last = datetime.fromisoformat(facts["last_shard_committed_at"])
    calls = sum(path.stat().st_size for path in (folder / "calls").iterdir())
    cpu_s = usage.ru_utime + usage.ru_stime
    repeated = calls - work.items if work.latency_s else 0
    shards_s = (last - first).total_seconds()
    return Execution(shards_s, command_s, cpu_s, repeated, manifest.plan.shards)


def environment() -> dict[str, str]:
    """Return this process's environment without evalcore's settings."""
    return {name: text for name, text in os.environ.items() if not name.startswith("EVALCORE_")}


def kill_first(calls: Path, after: int) -> None:
    """Kill one of the processes that call, once together they have called so often."""
    deadline = time.monotonic() + _PATIENCE_S
    while sum(path.stat().st_size for path in calls.iterdir()) < after:
        if time.monotonic() > deadline:
            raise RunFailedError("no process has called")
        time.sleep(0.02)
    os.kill(int(min(path.name for path in calls.iterdir())), signal.SIGKILL)


@contextmanager
def server(home: Path) -> Iterator[None]:
    """Run a Prefect server, and let this process's children know it."""
    from tests.support.prefect_server import prefect_server

    with prefect_server(home) as running:
        os.environ |= {"PREFECT_API_URL": running.url, "PREFECT_HOME": str(home)}
        yield


def rows_of(work: Work, measured: Mapping[str, Sequence[Execution]]) -> list[Row]:
    """Return the lines of one work: each way against the first one, in the same round."""
    reference = next(iter(measured))
    base_s = median(each.shards_s for each in measured[reference])
    rows = []
    for way, executions in measured.items():
        shards_s = median(each.shards_s for each in executions)
        pairs = zip(executions, measured[reference], strict=True)
        ratio = median(each.shards_s / base.shards_s for each, base in pairs)
        bound = work.bound if way != reference else None
        missed = f"{ratio:.2f}× > {bound:g}×" if bound is not None and ratio > bound else ""
        cells = (
            work.title,
            way,
            f"{shards_s:.2f}",
            "" if way == reference else f"{ratio:.2f}×",
            "" if bound is None else f"{bound:g}×",
            f"{median(each.command_s for each in executions):.1f}",
            "" if way == "ray" else f"{median(each.cpu_s for each in executions):.1f}",
            str(round(median(each.repeated for each in executions))) if work.latency_s else "",
        )
        rows.append(Row(cells, missed))
    print(f"{work.title}: {base_s:.2f} s", file=sys.stderr)
    return rows


def write_table(rows: Sequence[Row], rounds: int, beside: str) -> None:
    """Print what was measured until now, and write it into RESULTS.md."""
    header = (
        "work",
        "by",
        "shards (s)",
        "ratio",
        "bound",
        "command (s)",
        "CPU (s)",
        "called again",
    )
    text = table(header, rows)
    print(text)
    about = f"two processes each, median of {rounds} in turn, {machine()}{beside}"
    command = "uv run --extra dask --extra ray python -m benchmarks.engines"
    write_section("engines", f"## Lanes, Dask, Ray\n\n`{command}`, {about}.\n\n{text}")


def main() -> int:
    """Measure in turn, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure lanes, Dask and Ray.")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--only", default=",".join(WORKS), help="works, separated by commas")
    parser.add_argument("--beside", default="", help="what else ran, for RESULTS.md")
    options = parser.parse_args()
    rows: list[Row] = []
    with TemporaryDirectory(prefix="evalcore-bench-") as name, server(Path(name) / "prefect"):
        for key in options.only.split(","):
            work = WORKS[key]
            suite = write_work(work, Path(name) / key)
            measured: dict[str, list[Execution]] = {way: [] for way in work.ways}
            for _ in range(options.rounds):
                for way, flags in work.ways.items():
                    measured[way].append(execute(work, suite, flags))
                    print(f"{key} {way}: {measured[way][-1]}", file=sys.stderr)
            rows += rows_of(work, measured)
            write_table(rows, options.rounds, options.beside)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
