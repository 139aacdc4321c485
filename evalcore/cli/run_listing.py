"""`evalcore runs list`: what became of each run, and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.model.run import Manifest, State
from evalcore.pipeline.lease import is_interrupted
from evalcore.report.document import on_one_line
from evalcore.report.figures import duration_text
from evalcore.storage.runs import (
    PART,
    RunFigures,
    UnreadableRun,
    list_all_runs,
    open_run,
    read_figures,
)
from evalcore.storage.store import ObjectStore

DAMAGED: Final = "damaged"
_UNPLANNED: Final = "unplanned"
INTERRUPTED: Final = "interrupted"
_ABSENT: Final = "–"
_ROW: Final = "{:<23}  {:<12}  {:>9}  {:>7}  {:>9}  {:>9}  {:>10}  {}"
_TITLES: Final = ("RUN", "DECISION", "ITEMS", "SCORE", "PASS RATE", "DURATION", "COST USD", "SUITE")


@click.command("list")
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@store_option
@json_option
def list_command(suite: str | None, limit: int | None, store: str | None, as_json: bool) -> None:
    """List runs, newest first, with their score, pass rate, duration and cost.

    A run whose processes have died is shown as interrupted; `evalcore run --resume` goes on.
    """
    opened = chosen_store(store)
    entries = _entries(opened, islice(list_all_runs(opened, suite), limit))
    if as_json:
        click.echo(on_one_line(orjson.dumps(list(entries)).decode()))
        return
    empty = True
    for entry in entries:
        if empty:
            click.echo(_ROW.format(*_TITLES))
        empty = False
        click.echo(one_line(_line(entry)))
    if empty:
        click.echo("no runs yet", err=True)


def manifest_facts(manifest: Manifest) -> dict[str, Any]:
    """Return what a listing shows of a run from its manifest alone."""
    plan = manifest.plan
    return {
        "id": manifest.id,
        "suite": manifest.suite,
        "state": manifest.state,
        "decision": manifest.decision,
        "format": manifest.format,
        "mode": manifest.mode,
        "created_at": manifest.created_at,
        "ended_at": manifest.ended_at,
        "source": manifest.source.get("path"),
        "items": plan.items,
        "cases": plan.cases,
        "variants": plan.variants,
        "iterations": plan.iterations,
        "shards": plan.shards,
        "counts": manifest.counts,
        "part": manifest.execution.get(PART),
    }


def _entries(
    store: ObjectStore, runs: Iterable[Manifest | UnreadableRun]
) -> Iterator[dict[str, Any]]:
    now = datetime.now(UTC)
    for run in runs:
        if isinstance(run, UnreadableRun):
            entry = {"id": run.id, "suite": run.suite, "state": DAMAGED, "decision": None}
            yield entry | {"reason": run.reason}
            continue
        stored = open_run(store, run.suite, run.id)
        figures = read_figures(run) if run.state is State.COMPLETED else RunFigures()
        yield manifest_facts(run) | {
            "planned": run.is_planned,
            "interrupted": is_interrupted(stored, run, now=now),
            "duration_s": _duration_s(run),
            **figures._asdict(),
        }


def _duration_s(run: Manifest) -> float | None:
    if run.ended_at is None:
        return None
    started = datetime.fromisoformat(run.started_at or run.created_at)
    took = datetime.fromisoformat(run.ended_at) - started
    # Clocks of two machines may have said when it began and when it ended.
    return max(0.0, round(took.total_seconds(), 3))


def _line(entry: dict[str, Any]) -> str:
    if entry["state"] == DAMAGED:
        return f"{entry['id']}  {DAMAGED:<12}  {entry['reason']}  {entry['suite']}"
    outcome = entry["decision"] or (entry["state"] if entry["planned"] else _UNPLANNED)
    if entry["interrupted"]:
        outcome = INTERRUPTED
    score, rate, cost = entry["score"], entry["pass_rate"], entry["cost_usd"]
    return _ROW.format(
        entry["id"],
        outcome,
        entry["items"],
        _ABSENT if score is None else f"{score:.4f}",
        _ABSENT if rate is None else f"{rate:.1%}",
        _ABSENT if entry["duration_s"] is None else duration_text(entry["duration_s"]),
        _ABSENT if cost is None else f"{cost:,.4f}",
        f"{entry['suite']}  partial: {'; '.join(entry['part'])}"
        if entry["part"]
        else entry["suite"],
    )
