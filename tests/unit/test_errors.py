"""Errors that processes hand to each other."""

from __future__ import annotations

import pickle

import pytest

from evalcore.errors import Damage, DamagedRunError

RUN = "20260518T100000Z-0a1b2c"


@pytest.mark.parametrize(
    ("damages", "says"),
    [
        ((Damage("shard 7", "has 19 of 22 rows", 7),), "executes those shards again"),
        ((Damage("plan/suite.json", "is cut"),), "run the suite again"),
    ],
    ids=["a shard", "the plan"],
)
def test_a_damaged_run_says_place_and_remedy_also_in_another_process(
    damages: tuple[Damage, ...], says: str
) -> None:
    error = pickle.loads(pickle.dumps(DamagedRunError(RUN, damages)))
    assert str(damages[0]) in str(error)
    assert says in str(error)
    assert (error.run_id, error.damages) == (RUN, damages)


def test_many_damages_are_counted_and_the_first_ones_named() -> None:
    damages = tuple(Damage(f"shard {shard}", "is missing", shard) for shard in range(40))
    text = str(DamagedRunError(RUN, damages))
    assert "shard 4 is missing; and 35 more" in text
