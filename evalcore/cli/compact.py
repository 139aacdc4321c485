"""`evalcore compact`: make the history's small files large ones, drop old raw results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.ages import Age
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.report.document import on_one_line
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.history.compaction import Compacted

_MEGABYTE: Final = 1_000_000


@click.command()
@click.option(
    "--drop-results-older-than",
    "age",
    metavar="AGE",
    type=Age(),
    help="Delete the raw results of runs that ended longer ago (90d), if their rows are in the "
    "history; manifests, plans and reports stay, and baselines keep theirs.",
)
@store_option
@json_option
def compact(age: timedelta | None, store: str | None, as_json: bool) -> None:
    """Make the small files of the history's tables large ones."""
    from evalcore.history.compaction import compact as compact_history

    before = None if age is None else datetime.now(UTC) - age
    done = compact_history(chosen_store(store), drop_results_before=before)
    if as_json:
        click.echo(on_one_line(orjson.dumps(_document(done)).decode()))
        return
    for line in _lines(done):
        click.echo(one_line(line))


def _document(done: Compacted) -> dict[str, Any]:
    return {
        "tables": [asdict(table) for table in done.tables],
        "dropped": [
            {"run": run.run_id, "suite": run.suite, "bytes": run.bytes} for run in done.dropped
        ],
        "retained": [
            {"run": run.run_id, "suite": run.suite, "bytes": run.bytes, "reason": run.reason}
            for run in done.retained
        ],
    }


def _lines(done: Compacted) -> Iterator[str]:
    for table in done.tables:
        yield (
            f"{table.table:<10} {counted(table.files_before, 'file')} → {table.files_after}, "
            f"{counted(table.removed, 'old file')} removed"
        )
    for run in done.retained:
        yield f"kept: the results of {run.run_id} ({run.suite}): it {run.reason}"
    if done.dropped:
        freed = sum(run.bytes for run in done.dropped) / _MEGABYTE
        yield f"dropped the results of {counted(len(done.dropped), 'run')}: {freed:.1f} MB"
