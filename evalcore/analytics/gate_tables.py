"""What gates read beside the summary: the earlier runs, and the cases in the order of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evalcore.analytics.named import query_text, read_rows
from evalcore.gates.gate import CaseValue, SequentialRule
from evalcore.gates.sequential import SeenValue
from evalcore.model.run import PastRuns
from evalcore.sql.connection import BoundedConnection, literal_path

Row = tuple[Any, ...]
_COLUMNS: Final = {
    "past_runs": "number INTEGER, run_id VARCHAR, variant VARCHAR, cases BIGINT, score DOUBLE, "
    "pass_rate DOUBLE, latency DOUBLE, cost DOUBLE",
    "past_cases": "number INTEGER, variant VARCHAR, case_id VARCHAR, cluster VARCHAR, "
    "score DOUBLE, passed BOOLEAN, wavered BOOLEAN",
}


# Given rows say nothing of the work of a case: it is taken for the same in every run.
_MARK_CHANGES: Final = """
CREATE OR REPLACE TEMP TABLE past_cases AS
SELECT * REPLACE (
    wavered OR coalesce(
        passed <> lag(passed) OVER (PARTITION BY variant, case_id ORDER BY number), false
    ) AS wavered
)
FROM past_cases
"""


class PastTables(NamedTuple):
    """The frozen runs, and their rows: as Parquet files, or given; neither where there are none."""

    frozen: PastRuns
    runs_file: Path | None = None
    cases_file: Path | None = None
    runs: Sequence[Row] = ()
    cases: Sequence[Row] = ()


class PastVariant(NamedTuple):
    """A variant of an earlier run: the run's number, from 1, and its id."""

    number: int
    run_id: str
    variant: str


def open_past(
    connection: BoundedConnection, past: PastTables, left_out: Sequence[str] = ()
) -> None:
    """Make the tables `past_runs` and `past_cases`, and the views of the run that gates pair them
    with: `measured_cases`, `variant_figures`, `variant_measures`, `vanished_cases`. The cases
    `left_out` of the run are left out of the earlier ones.
    """
    tables = {"past_runs": (past.runs_file, past.runs), "past_cases": (past.cases_file, past.cases)}
    for name, (path, rows) in tables.items():
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({_COLUMNS[name]})")
        if path is not None:
            source = "read_parquet($file, hive_partitioning = false)"
            connection.execute(f"INSERT INTO {name} FROM {source}", {"file": literal_path(path)})
        if rows:
            # One value: each parameter of `executemany` costs a search for pandas.
            columns = ", ".join(f"r[{number}]" for number in range(1, len(rows[0]) + 1))
            source = """(SELECT unnest(from_json($rows, '[["VARCHAR"]]')) AS r)"""
            insert = f"INSERT INTO {name} SELECT {columns} FROM {source}"  # noqa: S608
            connection.execute(insert, {"rows": orjson.dumps(rows).decode()})
    if past.cases:
        connection.execute(_MARK_CHANGES)
    if left_out:
        leave_out = "DELETE FROM past_cases WHERE case_id IN (SELECT unnest($1::VARCHAR[]))"
        connection.execute(leave_out, [list(left_out)])
    for view in ("measured_cases", "variant_figures", "variant_measures", "vanished_cases"):
        connection.execute(query_text(view))


def past_rows(
    connection: BoundedConnection, columns: Sequence[PastVariant]
) -> tuple[list[Row], list[Row]]:
    """Return the runs that a connection holds as rows of `past_runs` and of `past_cases`.

    The connection's variants are named by their indices in `columns`.
    """
    runs = connection.execute(
        "SELECT variant::INTEGER, cases, score, pass_rate, latency, cost FROM variant_measures"
    ).fetchall()
    cases = connection.execute(
        "SELECT variant::INTEGER, case_id, NULL, now_score, now_passed, now_wavered "
        "FROM measured_cases WHERE measured"
    ).fetchall()
    return (
        [(*columns[index], *measures) for index, *measures in runs],
        [(columns[index].number, columns[index].variant, *facts) for index, *facts in cases],
    )


_DIFFERENCES = """
SELECT case_number, place, difference FROM pairs WHERE shared AND difference IS NOT NULL
"""
_PAST_DIFFERENCES = """
SELECT case_number, variant, now_score - score
FROM measured_cases
JOIN (
    SELECT variant, case_id, fsum(score ORDER BY number) / count(*) AS score
    FROM past_cases
    WHERE number > (SELECT max(number) FROM past_runs) - $runs
    GROUP BY variant, case_id
) USING (variant, case_id)
WHERE measured
"""


def sequential_values(
    connection: BoundedConnection, rules: Sequence[SequentialRule], candidates: Sequence[str]
) -> Iterator[list[SeenValue]]:
    """Yield the values of each evaluated case that the rules read, in the order of the plan.

    `candidates` are the compared variants in the order of the comparison. The table `pairs` is
    there if a rule reads differences, `past_cases` if one reads those from the history.
    """
    kinds = {rule.value: rule for rule in rules}
    k = max((rule.k for rule in rules if rule.value is CaseValue.RELIABILITY), default=1)
    rows = read_rows(connection, "sequential_values", k=k)
    values = [
        SeenValue(number, CaseValue(name), variant, value, variants)
        for number, variant, name, value, variants in rows
    ]
    if CaseValue.DIFFERENCE in kinds:
        values += [
            SeenValue(number, CaseValue.DIFFERENCE, candidates[index], value)
            for number, index, value in connection.execute(_DIFFERENCES).fetchall()
        ]
    if (past := kinds.get(CaseValue.PAST_DIFFERENCE)) is not None:
        differences = connection.execute(_PAST_DIFFERENCES, {"runs": past.k}).fetchall()
        values += [
            SeenValue(number, CaseValue.PAST_DIFFERENCE, variant, value)
            for number, variant, value in differences
        ]
    values.sort(key=lambda value: value.case_number)
    for _, of_case in groupby(values, key=lambda value: value.case_number):
        yield list(of_case)


def executed_iterations(connection: BoundedConnection) -> list[tuple[int, int]]:
    """Return numbers of iterations, and how many cases × variants were run so often."""
    return [(most, count) for most, count in read_rows(connection, "iterations_run")]
