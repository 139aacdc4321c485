"""What the model of a fleet is fed with, and what it is checked against: real workers here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.fleet_parameters import Costs, Fleet, shards_of
from benchmarks.measure import EVALCORE, CommandFailedError
from benchmarks.throughput import write_cases
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun

# Long calls: on a busy machine each answer is noticed late.
LATENCY_S = 2.0
AT_ONCE = 20
LIVE_ITEMS = 400
# So many that the memory of a worker has been touched once: it is part of its start.
FEW_ITEMS = 10_000
_PIECES = "few", "large", "cut", "crowded"


class Execution(NamedTuple):
    """Workers on one run: seconds from their start to the last commit, and processor seconds.

    `plan_s` and `report_s` are processor seconds, too. Bytes are those stored.
    """

    last_commit_s: float
    cpu_s: float
    plan_s: float
    report_s: float
    plan_bytes: int
    result_bytes: int


def write_live(path: Path, items: int) -> None:
    """Write a suite whose target answers after the latency."""
    target = f"{{name: slow, provider: mock, response: hello, latency_ms: {LATENCY_S * 1000:.0f}}}"
    path.write_text(
        "name: fleet\n"
        f"targets: [{target}]\n"
        f"execution: {{target: slow, workers: {AT_ONCE}}}\n"
        "assertions: [{type: contains, value: hello}]\n"
        f"tests: {path.stem}.jsonl\n"
    )
    lines = (json.dumps({"id": f"c{number}", "input": "x"}) for number in range(items))
    path.with_name(f"{path.stem}.jsonl").write_text("\n".join(lines))


def execute(suite: Path, workers: int, planned_for: int | None = None) -> Execution:
    """Plan the suite, let workers execute it, and report; the shards are cut for `planned_for`."""
    with TemporaryDirectory(prefix="evalcore-bench-") as folder:
        store = open_store(folder)
        began = time.process_time()
        options = PlanOptions(workers=planned_for or workers)
        run = plan_run(load(suite), store, options, now=datetime.now(UTC))
        plan_s = time.process_time() - began
        started, cpu_s = time.time(), _work(run, workers)
        results = _files(folder, "results/*.parquet")
        began = time.process_time()
        with finish_run(run, (), now=datetime.now(UTC)):
            report_s = time.process_time() - began
        return Execution(
            max(path.stat().st_mtime for path in results) - started,
            cpu_s,
            plan_s,
            report_s,
            sum(path.stat().st_size for path in _files(folder, "plan/*")),
            sum(path.stat().st_size for path in results),
        )


def _files(folder: str, below: str) -> list[Path]:
    return list(Path(folder).glob(f"runs/*/*/{below}"))


def _work(run: StoredRun, workers: int) -> float:
    """Run worker processes to their end; return their processor seconds."""
    command = [EVALCORE, "worker", run.run_id, "--store", run.store.url, "--part", str(os.getpid())]
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(workers)
    ]
    cpu_s = 0.0
    for process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu_s += usage.ru_utime + usage.ru_stime
        if process.returncode:
            message = process.stderr.read().decode() if process.stderr else ""
            raise CommandFailedError(f"a worker ended with {process.returncode}: {message}")
    return cpu_s


class Measured(NamedTuple):
    """The costs, and the seconds (start to last commit) that real workers took, by their number.

    `stretch` is how long a second of one worker's processor time takes: less than a second if it
    has a core for its second thread, more if others want the cores. `crowding` is how much more
    processor time as many workers as cores take together than each alone: cores share caches, and
    may be halves of one. `instant_cpu_s` is the processor time of all workers.
    """

    costs: Costs
    stretch: float
    crowding: float
    instant_cpu_s: dict[int, float]
    instant_s: dict[int, float]
    live_s: dict[int, float]


def measure(rounds: int, items: int, live_items: int = LIVE_ITEMS) -> Measured:
    """Measure costs with small runs, then larger runs of several workers; all of them in turn."""
    small, cores = items // 2, os.cpu_count() or 1
    instant: dict[int, list[Execution]] = {1: [], 2: []}
    live: dict[int, list[Execution]] = {1: [], 2: [], 4: []}
    pieces: dict[str, list[Execution]] = {name: [] for name in _PIECES}
    live_few: list[Execution] = []
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        folder = Path(name)
        whole, part, few = (folder / f"cases-{count}.jsonl" for count in (items, small, FEW_ITEMS))
        for path, count in ((whole, items), (part, small), (few, FEW_ITEMS)):
            write_cases(path, count, "own-values")
        slow, slow_few = folder / "live.eval.yaml", folder / "few.eval.yaml"
        write_live(slow, live_items)
        write_live(slow_few, live_items // 4)
        for number in range(rounds):
            pieces["large"].append(execute(part, 1))
            pieces["cut"].append(execute(part, 1, planned_for=small))
            pieces["few"].append(execute(few, 1))
            pieces["crowded"].append(execute(part, cores))
            live_few.append(execute(slow_few, 1))
            for workers, executions in instant.items():
                executions.append(execute(whole, workers))
            for workers, executions in live.items():
                executions.append(execute(slow, workers))
            print(f"round {number + 1}", file=sys.stderr)
    costs = _costs(pieces, instant[1], (live_few, live[1]), (items, small, live_items))
    stretch = median(run.last_commit_s / run.cpu_s for run in pieces["large"])
    crowded_s = median(run.cpu_s for run in pieces["crowded"])
    crowding = crowded_s / instant_cpu_s(costs, small, cores)
    cpu_s = {workers: median(run.cpu_s for run in runs) for workers, runs in instant.items()}
    return Measured(costs, stretch, crowding, cpu_s, _commits(instant), _commits(live))


def instant_cpu_s(costs: Costs, items: int, workers: int) -> float:
    """Return the processor seconds of workers on a run of given outputs."""
    fleet = Fleet(items, workers)
    shards = len(shards_of(fleet))
    return workers * costs.start_s + items * costs.item_s + shards * costs.shard_s


def _commits(executions: dict[int, list[Execution]]) -> dict[int, float]:
    return {
        workers: median(execution.last_commit_s for execution in runs)
        for workers, runs in executions.items()
    }


def _costs(
    pieces: dict[str, list[Execution]],
    whole: Sequence[Execution],
    live: tuple[Sequence[Execution], Sequence[Execution]],
    counts: tuple[int, int, int],
) -> Costs:
    """Return what explains the small runs: few and many items, in few and in many shards.

    In processor time, which other work on the machine hardly changes.
    """
    items, small, live_items = counts
    few, large, cut = (median(run.cpu_s for run in pieces[name]) for name in _PIECES[:3])
    shards = -(-small // min(5_000, max(1_000, -(-small // 4)))), -(-small // 1_000)
    shard_s = max(0.0, (cut - large) / (shards[1] - shards[0]))
    item_s = (large - few - (shards[0] - 1) * shard_s) / (small - FEW_ITEMS)
    few_cpu, live_cpu = (median(run.cpu_s for run in runs) for runs in live)
    report_s = median(run.report_s for run in pieces["large"])
    report_item_s = (median(run.report_s for run in whole) - report_s) / (items - small)
    return Costs(
        plan_item_s=median(run.plan_s for run in whole) / items,
        item_s=item_s,
        live_item_s=(live_cpu - few_cpu) / (live_items - live_items // 4),
        shard_s=shard_s,
        start_s=few - FEW_ITEMS * item_s - shard_s,
        report_item_s=max(0.0, report_item_s),
        report_s=report_s - small * max(0.0, report_item_s),
        plan_bytes=whole[0].plan_bytes / items,
        result_bytes=whole[0].result_bytes / items,
    )
