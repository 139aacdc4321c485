"""Whether the history is brought up to date, asked and decided over within its bounds.

    uv run python -m benchmarks.history [--runs N] [--cases N] [--known N] [--large N]
        [--assertions N]

Measured: a sync of a year of nightly runs, a sync of one new run where many are known, the memory
of a sync of one large run, a trend over that year, and a decision over ten million rows of
assertions beside DuckDB's scan of the same columns. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from subprocess import run as run_process
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import duckdb

from benchmarks.measure import (
    EVALCORE,
    ROOT,
    CommandFailedError,
    Measured,
    Row,
    machine,
    run_measured,
    table,
    write_section,
)
from benchmarks.stored_runs import FIRST_RUN, copy_run, make_run
from evalcore.history.columns import TABLES
from evalcore.history.files import Partition, merged_name, store_files
from evalcore.sql.connection import open_database
from evalcore.storage.local import LocalStore

SYNC_S: Final = 60.0
ONE_RUN_S: Final = 2.0
LARGE_RUN_MB: Final = 700.0
TREND_S: Final = 1.0
DECISION_RATIO: Final = 2.5
DECISION_MB: Final = 2_000.0
REVISION: Final = f"{1:016}"
_ROWS_OF_A_RUN: Final = 200_000
_ROUNDS: Final = 3

# What a gate needs of each run and variant: shares, required scores, weighted means.
DECIDE = """
import json, resource, sys, time
from evalcore.history.files import HistoryViews
from evalcore.storage.local import LocalStore
from pathlib import Path
started = time.perf_counter()
with HistoryViews(LocalStore(Path(sys.argv[1])), tables=["assertions"]) as history:
    rows = history.rows('''
        SELECT run_id, variant, count(*), count(*) FILTER (outcome = 'passed'),
            count(*) FILTER (required IS NOT NULL AND score < required - 1e-9),
            sum(score * weight) / sum(weight)
        FROM assertions GROUP BY ALL ORDER BY run_id, variant
    ''')
seconds = time.perf_counter() - started
print(json.dumps([seconds, sum(row[2] for row in rows),
    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6]))
"""
SCAN = """
import glob, json, sys, time
import duckdb
connection = duckdb.connect(config={"memory_limit": "1024MB"})
connection.execute("SET enable_progress_bar = false")
started = time.perf_counter()
row = connection.execute('''
    SELECT count(run_id), max(variant), max(outcome), max(required), sum(score), sum(weight)
    FROM read_parquet($1, hive_partitioning = false)
''', [glob.glob(sys.argv[1] + "/history/assertions/suite=*/*/*.parquet")]).fetchone()
print(json.dumps([time.perf_counter() - started, row[0], 0]))
"""


class Sizes(NamedTuple):
    """How much is measured."""

    runs: int
    cases: int
    known_runs: int
    large: int
    assertions: int


def sync_year(folder: Path, sizes: Sizes) -> Row:
    """Make a year of runs and measure the sync that enters all of them."""
    run = make_run(folder, sizes.cases)
    for number in range(1, sizes.runs):
        copy_run(run, number)
    measured = run_measured(sync_command(folder))
    bound = SYNC_S * sizes.runs * sizes.cases / 365_000
    what = f"sync of {sizes.runs} runs × {sizes.cases} cases"
    return timed(what, measured, max(bound, ONE_RUN_S))


def trend(folder: Path) -> Row:
    """Measure the trend over the runs of the store, with its start; the median of some rounds."""
    command = [EVALCORE, "history", "nightly", "--store", str(folder / "store")]
    run_measured(command)
    rounds = [run_measured(command) for _ in range(_ROUNDS)]
    measured = Measured(
        median(each.seconds for each in rounds), max(each.peak_mb for each in rounds)
    )
    return timed("trend over these runs, with start", measured, TREND_S)


def sync_one(folder: Path, sizes: Sizes) -> Row:
    """Measure the sync of one new run where many are known."""
    run = make_run(folder, sizes.cases)
    run_measured(sync_command(folder))
    know_runs(LocalStore(folder / "store"), run, sizes.known_runs)
    copy_run(run, sizes.known_runs)
    measured = run_measured(sync_command(folder))
    return timed(f"sync of one run, {sizes.known_runs} known", measured, ONE_RUN_S)


def sync_large(folder: Path, sizes: Sizes) -> Row:
    """Measure the memory of a sync that enters one large run."""
    make_run(folder, sizes.large)
    measured = run_measured(sync_command(folder))
    peak_mb = measured.peak_mb
    cells = (
        f"sync of one run × {sizes.large:,} cases".replace(",", " "),
        f"{measured.seconds:.2f}",
        "–",
        f"{peak_mb:.0f} MB (< {LARGE_RUN_MB:.0f})",
    )
    missed = f"{peak_mb:.0f} MB ≥ {LARGE_RUN_MB:.0f} MB" if peak_mb >= LARGE_RUN_MB else ""
    return Row(cells, missed)


def sync_command(folder: Path) -> list[str]:
    """Return the command that brings the history of a store up to date."""
    return [EVALCORE, "history", "sync", "--store", str(folder / "store")]


def know_runs(store: LocalStore, run: Path, count: int) -> None:
    """Put so many runs into the store and into the tables: copies of one that is there."""
    manifest = json.loads((run / "manifest.json").read_bytes())
    versions: dict[str, int] = {}
    for number in range(count):
        created = FIRST_RUN + number * timedelta(hours=1)
        run_id = f"{created:%Y%m%dT%H%M%SZ}-{number:06x}"
        versions[run_id] = int((created + timedelta(minutes=5)).timestamp() * 1_000_000)
        for name in ("results/00000.parquet", "plan/suite.json", "plan/cases-00000.jsonl.zst"):
            path = run.with_name(run_id) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.hardlink_to(run / name)
        times = {"created_at": created, "started_at": created}
        times["ended_at"] = created + timedelta(minutes=5)
        texts = {name: f"{time:%Y-%m-%dT%H:%M:%S}.000000Z" for name, time in times.items()}
        path = run.with_name(run_id) / "manifest.json"
        path.write_text(json.dumps(manifest | texts | {"id": run_id}), "utf-8")
    columns = ", ".join(
        f"NULL::{column.type} AS {column.name}"
        for column in TABLES["runs"].columns
        if column.name not in {"run_id", "suite"}
    )
    ids = sorted(versions)
    with TemporaryDirectory(prefix="evalcore-bench-") as folder, open_database() as connection:
        # What a sync every night leaves: a file for each run of this month, one for each before.
        for month in sorted({run_id[:6] for run_id in ids}):
            path = Path(folder) / f"{month}.parquet"
            runs = [run_id for run_id in ids if run_id.startswith(month)]
            values = ", ".join(f"('{run}', '{versions[run]:016}-001-{month}')" for run in runs)
            rows = f"SELECT *, {columns} FROM (VALUES {values}) AS runs(run_id, revision)"
            copy_rows(connection, rows, path)
            partition = Partition("nightly", f"{month[:4]}-{month[4:]}")
            files = dict.fromkeys(TABLES, path)
            store_files(store, partition, merged_name(month), files)


def copy_rows(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> Path:
    """Write the rows of a query to a Parquet file; return the file."""
    connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path


def decide(folder: Path, sizes: Sizes) -> Row:
    """Measure a decision over many rows of assertions, and DuckDB's scan of the same columns."""
    store = LocalStore(folder / "store")
    rows = min(_ROWS_OF_A_RUN, sizes.assertions)
    for number in range(sizes.assertions // rows):
        run_id = f"20260101T{number:06}Z-000000"
        with open_database() as connection:
            path = copy_rows(connection, assertion_rows(run_id, rows), folder / f"{run_id}.parquet")
        files = dict.fromkeys(TABLES, path)
        name = f"{run_id}-{REVISION}"
        store_files(store, Partition("support", "2026-01"), name, files)
    ours, scan = (
        [measured_inside(program, folder / "store") for _ in range(_ROUNDS)]
        for program in (DECIDE, SCAN)
    )
    seconds, bare = median(each[0] for each in ours), median(each[0] for each in scan)
    peak_mb = max(each[2] for each in ours)
    if {each[1] for each in (*ours, *scan)} != {sizes.assertions}:
        raise CommandFailedError("not all rows were read")
    missed = []
    if seconds > DECISION_RATIO * bare:
        missed.append(f"{seconds / bare:.2f}× > {DECISION_RATIO:g}×")
    if peak_mb >= DECISION_MB:
        missed.append(f"{peak_mb:.0f} MB ≥ {DECISION_MB:.0f} MB")
    cells = (
        f"decision over {sizes.assertions:,} rows of assertions".replace(",", " "),
        f"{seconds:.2f} ({seconds / bare:.2f}× DuckDB's scan)",
        f"≤ {DECISION_RATIO:g}×",
        f"{peak_mb:.0f} MB (< {DECISION_MB:.0f})",
    )
    return Row(cells, ", ".join(missed))


def assertion_rows(run_id: str, rows: int) -> str:
    """Return a query for the assertions of a run: five for each item, every tenth failed."""
    return f"""
        SELECT
            '{run_id}' AS run_id, range // 5 AS item,
            'case-' || range // 5 AS case_id,
            CASE WHEN range % 2 = 0 THEN 'a' ELSE 'b' END AS variant,
            0::BIGINT AS iteration, 'contains-' || range % 5 AS name, 'contains' AS type,
            NULL::VARCHAR AS block,
            CASE WHEN hash(range) % 10 = 0 THEN 'failed' ELSE 'passed' END AS outcome,
            CASE WHEN hash(range) % 10 = 0 THEN 0.0 ELSE 1.0 END AS score, 1.0::DOUBLE AS weight,
            CASE WHEN range % 5 = 0 THEN 0.5::DOUBLE END AS required, NULL::VARCHAR AS judge,
            '{REVISION}' AS revision
        FROM range({rows})
    """


def measured_inside(program: str, store: Path) -> tuple[float, int, float]:
    """Run a program that says its seconds, rows and peak memory; return them."""
    command = [sys.executable, "-c", program, str(store)]
    ended = run_process(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise CommandFailedError(ended.stderr)
    seconds, rows, peak_mb = json.loads(ended.stdout.splitlines()[-1])
    return seconds, rows, peak_mb


def timed(what: str, measured: Measured, bound_s: float) -> Row:
    """Return the line of something that is bounded in seconds."""
    missed = f"{measured.seconds:.2f} s > {bound_s:g} s" if measured.seconds > bound_s else ""
    cells = (what, f"{measured.seconds:.2f}", f"{bound_s:g}", f"{measured.peak_mb:.0f} MB")
    return Row(cells, missed)


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure the history.")
    parser.add_argument("--runs", type=int, default=365)
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--known", dest="known_runs", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--assertions", type=int, default=10_000_000)
    sizes = Sizes(**vars(parser.parse_args()))
    rows: list[Row] = []
    measures: tuple[tuple[Callable[[Path], Row], ...], ...] = (
        (lambda folder: sync_year(folder, sizes), trend),
        (lambda folder: sync_one(folder, sizes),),
        (lambda folder: sync_large(folder, sizes),),
        (lambda folder: decide(folder, sizes),),
    )
    for group in measures:
        with TemporaryDirectory(prefix="evalcore-bench-") as name:
            for measure in group:
                try:
                    rows.append(measure(Path(name)))
                except CommandFailedError as error:
                    print(error, file=sys.stderr)
                    return 1
                print(rows[-1])
    text = table(("what", "seconds", "bound", "peak memory"), rows)
    print(text)
    about = (
        f"## The history\n\n`uv run python -m benchmarks.history`, a local store, {machine()}.\n\n"
    )
    write_section("history", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
