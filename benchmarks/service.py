"""How quickly the service answers over 100 000 results, on SQLite and on PostgreSQL.

`uv run python -m benchmarks.service`: a real server process, requests over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from sqlalchemy import insert, select

from benchmarks.measure import Row, machine, table, write_section
from evalcore.service.db import open_database
from evalcore.service.tables import EvalResultRow, EvalRow, EvalRunRow, Kind, new_engine_run, new_id
from tests.support.postgresql import databases
from tests.support.service import Service, service

_CHUNK = 1_000
_MOST_WAITING_S = 5
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_STORED = {"output-json-0": {"type": "json", "data": {"total": 42, "vendor": {"name": "Acme"}}}}
_ASSERTION = {
    "assertion_id": "assert_1",
    "condition_kind": "equals",
    "outcome": "passed",
    "actual_value": 42,
    "expected_value": 42,
    "failure": None,
}


async def store_results(address: str, workflow: str, results: int, evals: int) -> None:
    """Give the workflow's only eval `evals - 1` copies, and store so many results of all."""
    database, now = open_database(address), datetime.now(UTC)
    async with database.transaction() as session:
        template = (
            await session.scalars(select(EvalRow).where(EvalRow.workflow_id == workflow))
        ).one()
        owned = {"created_at": now, "workflow_id": workflow}
        of_block = {**owned, "block_id": template.block_id, "revision_id": template.revision_id}
        copies = [{**of_block, "id": new_id(Kind.EVAL)} for _ in range(evals - 1)]
        await session.execute(insert(EvalRow), copies)
    eval_ids = [template.id, *(copy["id"] for copy in copies)]
    final = {"status": "completed", "started_at": now, "completed_at": now, "trigger": "api"}
    for _ in range(results // _CHUNK):
        run_id = new_id(Kind.EVAL_RUN)
        run = {**owned, **final, "id": run_id, "version_id": "v1", "total_evals": _CHUNK}
        run |= {"engine_run": new_engine_run(now), "unfinished": False}
        stored = {"handle_outputs": _STORED, "assertion_result": _ASSERTION, "verdict": "passed"}
        rows = [
            {**of_block, **final, **stored, "id": new_id(Kind.RESULT), "run_id": run_id}
            | {"eval_id": eval_ids[number % evals] if number < evals else f"gone_{number}"}
            for number in range(_CHUNK)
        ]
        async with database.transaction() as session:
            await session.execute(insert(EvalRunRow), [run])
            await session.execute(insert(EvalResultRow), rows)
    if database.is_postgresql:  # as autovacuum does within a minute
        async with database.engine.begin() as connection:
            await connection.exec_driver_sql("ANALYZE")
    await database.close()


def p95(seconds: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return sorted(seconds)[int(len(seconds) * 0.95)] * 1000


def timed(call: Callable[[], Any], times: int) -> list[float]:
    """Return the seconds of each call."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def list_results(served: Service, workflow: str, times: int) -> float:
    """Return the p95 of pages of 50 results from all parts of the list, with several filters."""
    path, random = "/v1/workflows/evals/results", Random(1)
    cursors = [None]
    for _ in range(20):
        parameters = {"limit": 100} | ({"after": cursors[-1]} if cursors[-1] else {})
        cursors.append(served.get(path, **parameters)["list_metadata"]["after"])
    run_id = served.get("/v1/workflows/evals/runs", limit=50)["data"][-1]["id"]
    filters: list[dict[str, Any]] = [
        {},
        {"workflow_id": workflow},
        {"status": "completed"},
        {"exclude_status": "error", "trigger_type": "api"},
        {"run_id": run_id},
        {"target_block_id": "extract"},
    ]

    def read() -> None:
        chosen = random.choice(filters)
        cursor = None if "run_id" in chosen else random.choice(cursors)
        served.get(path, limit=50, **chosen, **({"after": cursor} if cursor else {}))

    timed(read, 10)
    return p95(timed(read, times))


def create_runs(served: Service, workflow: str, times: int) -> float:
    """Return the longest time (ms) of creating a run over all evals; each is cancelled at once."""
    path, seconds = "/v1/workflows/evals/runs", []
    for _ in range(times):
        began = time.perf_counter()
        run = served.post(path, {"workflow_id": workflow}, status=202)
        seconds.append(time.perf_counter() - began)
        served.post(f"{path}/{run['id']}/cancel", status=200)
        time.sleep(1)
    return max(seconds) * 1000


class Mixed(NamedTuple):
    """Reads of all kinds: how many a second were answered, their p95, the server's time on each."""

    per_second: float
    p95_ms: float
    cpu_ms: float


class Reader:
    """Sends GET requests over kept connections; costs the machine a tenth of what httpx does."""

    def __init__(self, url: str, connections: int) -> None:
        self._host, _, port = url.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._idle: asyncio.LifoQueue[Connection | None] = asyncio.LifoQueue()
        for _ in range(connections):
            self._idle.put_nowait(None)

    async def get(self, path: str) -> None:
        """Read an answer, which has to be 200."""
        connection = await self._idle.get()
        reader, writer = connection or await asyncio.open_connection(self._host, self._port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head.split(b"\r\n", 1)[0], head
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        self._idle.put_nowait((reader, writer))

    def close(self) -> None:
        """Close the connections."""
        while not self._idle.empty():
            connection = self._idle.get_nowait()
            if connection is not None:
                connection[1].close()


async def mixed_reads(served: Service, paths: list[str], per_second: int, lasts_s: float) -> Mixed:
    """Send reads at a fixed rate, however long they take, unless they wait for more than 5 s."""
    seconds: list[float] = []
    client = Reader(served.url, 100)

    async def read(path: str, due: float) -> None:
        await client.get(path)
        seconds.append(time.perf_counter() - due)

    assert served.process is not None
    cpu_s, began = cpu_seconds(served.process.pid), time.perf_counter()
    reads: list[asyncio.Task[None]] = []
    for number, path in zip(range(int(per_second * lasts_s)), itertools.cycle(paths)):
        due = began + number / per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        reads.append(asyncio.create_task(read(path, due)))
        if len(reads) - len(seconds) > per_second * _MOST_WAITING_S:
            break
    await asyncio.gather(*reads)
    ended = time.perf_counter()
    client.close()
    cpu_ms = (cpu_seconds(served.process.pid) - cpu_s) / len(seconds) * 1000
    return Mixed(len(seconds) / (ended - began), p95(seconds), cpu_ms)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used; 0 where there is no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, address: str, folder: Path, options: argparse.Namespace) -> list[Row]:
    """Return the lines of one database."""
    with service(folder, "--rate", "0", "--database", address) as served:
        workflow = served.register()
        saved = served.save(workflow, {"kind": "equals", "expected": 42})
        run = served.run(workflow)
        (result,) = served.results(run)
        asyncio.run(store_results(address, workflow, options.results, 1_000))
        listing = list_results(served, workflow, options.requests)
        paths = [
            f"/v1/workflows/evals/results?run_id={run['id']}",
            "/v1/workflows/evals/results?limit=20",
            f"/v1/workflows/evals/{saved}",
            f"/v1/workflows/evals/results/{result['id']}",
            f"/v1/workflows/evals/runs/{run['id']}",
            f"/v1/workflows/{workflow}",
            f"/v1/workflows/evals?workflow_id={workflow}&limit=10",
            "/v1/workflows/evals/runs?limit=10",
        ]
        mixed = asyncio.run(mixed_reads(served, paths, 200, options.seconds))
        creating = create_runs(served, workflow, 5)
    return [
        bounded(f"{name}: 50 of {options.results} results, p95", listing, 50),
        bounded(f"{name}: create a run over 1000 evals, slowest of 5", creating, 300),
        bounded(
            f"{name}: mixed reads at {mixed.per_second:.0f}/s of 200/s, p95", mixed.p95_ms, 100
        ),
        bounded(f"{name}: the server's CPU time for each of them", mixed.cpu_ms, 5),
    ]


def bounded(what: str, ms: float, bound: float) -> Row:
    """Return a line of the table."""
    missed = "" if ms < bound else f"{ms:.0f} ms > {bound:.0f} ms"
    return Row((what, f"{ms:.1f}", f"{bound:.0f}", f"{ms / bound:.2f}×"), missed)


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure the service over many results.")
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=200, help="pages of results")
    parser.add_argument("--seconds", type=float, default=10.0, help="of mixed reads")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    loads = os.getloadavg()
    rows: list[Row] = []
    for database, address, folder in databases():
        rows += measure(database, address, folder, options)
    text = table(("what", "ms", "bound", "ratio"), rows)
    print(text)
    if not options.dry:
        loaded = f"load average {loads[0]:.1f} before, {os.getloadavg()[0]:.1f} at the end"
        head = f"## Service\n\n`uv run python -m benchmarks.service`, {machine()}, {loaded}.\n"
        write_section("service", f"{head}\n{text}")
    return int(any(row.missed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
