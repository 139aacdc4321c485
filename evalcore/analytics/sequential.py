"""What gates that end a run early read of its cases, in the order of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING

from evalcore.analytics.named import read_rows
from evalcore.gates.gate import DIFFERENCES, CaseValue, SequentialRule
from evalcore.gates.sequential import RoundItem, SeenValue
from evalcore.sql.connection import BoundedConnection

if TYPE_CHECKING:
    from evalcore.analytics.summary import Aggregates

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


def read_round(
    tables: Aggregates, rules: Mapping[int, SequentialRule], iterations: int, iteration: int
) -> tuple[list[RoundItem], list[SeenValue]]:
    """Return the items of a round in the order of the plan, and the differences of each case.

    `tables` have this round and those before it; the differences are those of all of them.
    """
    numbers = {"iterations": iterations, "round": iteration}
    rows = read_rows(tables.connection, "round_values", **numbers)
    items = [RoundItem(*row) for row in rows]
    if tables.awaits_labels():
        return items, []
    compared: list[str] = []
    kinds = [rule for rule in rules.values() if rule.value in DIFFERENCES]
    if any(rule.value is CaseValue.DIFFERENCE for rule in kinds):
        compared = tables.compared_variants()
        if not compared:
            kinds = [rule for rule in kinds if rule.value is not CaseValue.DIFFERENCE]
    if not kinds:
        return items, []
    return items, [*chain.from_iterable(sequential_values(tables.connection, kinds, compared))]


def executed_iterations(connection: BoundedConnection) -> list[tuple[int, int]]:
    """Return numbers of iterations, and how many cases × variants were run so often."""
    return [(most, count) for most, count in read_rows(connection, "iterations_run")]
