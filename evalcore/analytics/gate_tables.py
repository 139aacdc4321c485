"""What gates read beside the summary: the earlier runs, and the cases in the order of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from evalcore.analytics.named import query_text, read_rows, run_query
from evalcore.gates.gate import CaseValue, SequentialRule
from evalcore.gates.sequential import SeenValue
from evalcore.model.past import PastRuns
from evalcore.sql.connection import BoundedConnection, literal_path

Row = tuple[Any, ...]


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
    run_query(connection, "past_tables")
    tables = {"past_runs": (past.runs_file, past.runs), "past_cases": (past.cases_file, past.cases)}
    for name, (path, rows) in tables.items():
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
        run_query(connection, "past_changes")
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
    differences: list[tuple[CaseValue, Row]] = []
    if CaseValue.DIFFERENCE in kinds:
        rows = read_rows(connection, "pair_differences", candidates=list(candidates))
        differences += [(CaseValue.DIFFERENCE, row) for row in rows]
    if (past := kinds.get(CaseValue.PAST_DIFFERENCE)) is not None:
        rows = read_rows(connection, "past_differences", runs=past.k)
        differences += [(CaseValue.PAST_DIFFERENCE, row) for row in rows]
    values += [
        SeenValue(number, kind, variant, value) for kind, (number, variant, value) in differences
    ]
    values.sort(key=lambda value: value.case_number)
    for _, of_case in groupby(values, key=lambda value: value.case_number):
        yield list(of_case)


def executed_iterations(connection: BoundedConnection) -> list[tuple[int, int]]:
    """Return numbers of iterations, and how many cases × variants were run so often."""
    return [(most, count) for most, count in read_rows(connection, "iterations_run")]
