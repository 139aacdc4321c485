"""What gates read of one round: an iteration of all cases."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from evalcore.analytics.named_queries import query_text
from evalcore.analytics.sequential import sequential_values
from evalcore.gates.rounds import RoundItem
from evalcore.gates.sequential import DIFFERENCES, CaseValue, SeenValue, SequentialRule
from evalcore.sql.connection import BoundedConnection

if TYPE_CHECKING:
    from evalcore.analytics.summarise import Aggregates


def read_round(
    tables: Aggregates, rules: Mapping[int, SequentialRule], iterations: int, iteration: int
) -> tuple[list[RoundItem], list[SeenValue]]:
    """Return the items of a round in the order of the plan, and the differences of each case.

    `tables` have this round and those before it; the differences are those of all of them.
    """
    parameters = {"iterations": iterations, "round": iteration}
    rows = tables.connection.execute(query_text("round_values"), parameters).fetchall()
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
    return [
        (most, count) for most, count in connection.execute(query_text("iterations_run")).fetchall()
    ]
