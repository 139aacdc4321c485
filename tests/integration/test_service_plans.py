"""What the service asks of its database: how often, and by which indices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import event

from evalcore.service.db import Database
from evalcore.service.worker import EvalWorker, WorkflowWorker
from evalcore.settings import Settings
from tests.support.service_in_process import Requests, requests_to, service_context

_EVALS = "/v1/workflows/evals"
_RESULTS, _RUNS = f"{_EVALS}/results", f"{_EVALS}/runs"


class Read(NamedTuple):
    """A request, and how many statements it costs."""

    statements: int
    path: str
    parameters: Mapping[str, Any] = {}


class Asked(NamedTuple):
    """A statement as the driver has it."""

    statement: str
    parameters: Any


def test_reads_cost_a_fixed_number_of_statements_and_each_uses_an_index(
    tmp_path: Path, database: str
) -> None:
    asyncio.run(_check_reads(tmp_path, database))


async def _check_reads(folder: Path, address: str) -> None:
    for evals in (2, 6):
        async with service_context(folder, address=address) as context:
            context.workers = [
                EvalWorker(context, Settings(), 1),
                WorkflowWorker(context, Settings(), 1),
            ]
            async with requests_to(context) as requests:
                reads = await _reads(requests, evals)
                for worker in context.workers:
                    await worker.stop()
                for name, read in reads.items():
                    with _recorded(context.database) as asked:
                        await requests.get(read.path, **read.parameters)
                    assert len(asked) == read.statements, (name, asked)
                    for query in asked:
                        await _check_plan(context.database, name, query)


async def _reads(requests: Requests, evals: int) -> dict[str, Read]:
    """Store a run of so many evals and a workflow run; return all reads of them."""
    run_path = await requests.start_run(evals)
    run = await requests.ended(run_path)
    workflow = run["workflow_id"]
    started = await requests.post(
        f"/v1/workflows/{workflow}/runs", {"inputs": {"amount": 1, "name": "x"}}, status=202
    )
    workflow_run = f"/v1/workflows/runs/{started['id']}"
    await requests.ended(workflow_run)
    page = await requests.get(_RESULTS)
    newest = page["data"][0]
    filters = {
        "of a workflow": {"workflow_id": workflow},
        "of an eval": {"eval_id": newest["eval_id"]},
        "of a block": {"target_block_id": "extract"},
        "of a status": {"status": "completed"},
        "without a status": {"exclude_status": "error"},
        "of a trigger": {"trigger_type": "api"},
        "since a date": {"from_date": "2026-01-01T00:00:00Z"},
    }
    of_block = {"workflow_id": workflow, "target_block_id": "extract"}
    return {
        "evals": Read(4, _EVALS, {"workflow_id": workflow}),
        "evals of a block": Read(4, _EVALS, of_block),
        "eval": Read(4, f"{_EVALS}/{newest['eval_id']}"),
        "results": Read(2, _RESULTS),
        "results of a run": Read(3, _RESULTS, {"run_id": run["id"]}),
        "results after one": Read(3, _RESULTS, {"after": newest["id"]}),
        "results before one": Read(3, _RESULTS, {"before": page["data"][-1]["id"]}),
        **{f"results {name}": Read(2, _RESULTS, given) for name, given in filters.items()},
        "result": Read(2, f"{_RESULTS}/{newest['id']}"),
        "runs": Read(2, _RUNS),
        **{f"runs {name}": Read(2, _RUNS, given) for name, given in filters.items()},
        # Runs of all evals have neither an eval nor a block.
        "runs of an eval": Read(1, _RUNS, filters["of an eval"]),
        "runs of a block": Read(1, _RUNS, filters["of a block"]),
        "run": Read(2, run_path),
        "workflow": Read(2, f"/v1/workflows/{workflow}"),
        "workflows": Read(2, "/v1/workflows"),
        "workflow run": Read(1, workflow_run),
        "steps": Read(2, f"{workflow_run}/steps"),
    }


@contextmanager
def _recorded(database: Database) -> Iterator[list[Asked]]:
    """Give the queries that are executed meanwhile."""
    asked: list[Asked] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append(Asked(statement, parameters))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)


async def _check_plan(database: Database, name: str, asked: Asked) -> None:
    """Fail for a statement that reads a whole table, or sorts one."""
    explain = "EXPLAIN (FORMAT JSON) " if database.is_postgresql else "EXPLAIN QUERY PLAN "
    async with database.engine.connect() as connection:
        if database.is_postgresql:
            # The tables are so small that reading them whole is the cheapest.
            await connection.exec_driver_sql("SET enable_seqscan = off")
            await connection.exec_driver_sql("SET enable_sort = off")
        plan = (await connection.exec_driver_sql(explain + asked.statement, asked.parameters)).all()
    if database.is_postgresql:
        whole = [*_whole_reads(plan[0][0][0]["Plan"])]
    else:
        whole = [row.detail for row in plan if row.detail.startswith(("SCAN", "USE TEMP B-TREE"))]
    # The newest rows are read in the order of the primary key, as many as the page has.
    if "number DESC" in asked.statement and "LIMIT" in asked.statement:
        whole = [part for part in whole if "SCAN" not in part and "Index Scan" not in part]
    assert not whole, (name, asked.statement, plan)


def _whole_reads(node: Mapping[str, Any]) -> Iterator[str]:
    kind = node["Node Type"]
    if kind == "Seq Scan" or (kind.startswith("Index") and "Index Cond" not in node):
        yield f"{kind} {node.get('Relation Name')}"
    below: Sequence[Mapping[str, Any]] = node.get("Plans", ())
    for part in below:
        yield from _whole_reads(part)
