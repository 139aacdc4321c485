"""Cases in a random order with a seed: what a run that stops early has to execute them in."""

from __future__ import annotations

import random
from collections.abc import Iterator

from evalcore.model.suite import Case, CaseSource
from evalcore.planning.spool import CaseSpool

# So many cases are in memory at once; for each such portion the source is read again.
_PORTION = 100_000


def in_random_order(cases: CaseSource, seed: int) -> CaseSpool:
    """Return the cases in the order of the seed: the same seed gives the same order."""
    numbers = list(range(len(cases)))
    random.Random(seed).shuffle(numbers)  # noqa: S311  (no secret)
    spool = CaseSpool()
    for start in range(0, len(numbers), _PORTION):
        for case in _portion(cases, numbers[start : start + _PORTION]):
            spool.append(case)
    return spool


def _portion(cases: CaseSource, numbers: list[int]) -> Iterator[Case]:
    """Yield the cases with these numbers, in the order of the numbers."""
    positions = {number: position for position, number in enumerate(numbers)}
    chosen: list[Case | None] = [None] * len(numbers)
    for number, case in enumerate(cases):
        if (position := positions.get(number)) is not None:
            chosen[position] = case
    yield from (case for case in chosen if case is not None)
