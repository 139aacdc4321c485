"""Deaths of interpreters: which items of a shard are held to have caused them."""

from __future__ import annotations

from evalcore.execution.lanes.claims import Lease, decode_lease
from evalcore.execution.lanes.crashes import after_death

ITEMS = range(40, 60)
BEGUN = Lease("worker", 0.0)


def after_deaths(*items: int | None, isolated_from: int = 2) -> Lease:
    """Return the lease after one death for each of the items that had begun."""
    lease = BEGUN
    for number, item in enumerate(items):
        isolated = number >= isolated_from
        lease = after_death(lease._replace(item=item), "signal 11", ITEMS, isolated=isolated)
        lease = lease.taken_over("next", 1.0)
    return lease


def test_two_deaths_accuse_nothing() -> None:
    lease = after_deaths(None, None)
    assert (lease.deaths, lease.culprits) == (2, ())


def test_the_item_of_the_third_death_is_not_executed_again() -> None:
    assert after_deaths(None, None, 44).culprits == (44,)
    assert after_deaths(None, None, 44, 51).culprits == (44, 51)


def test_a_death_of_a_process_that_executed_other_shards_too_accuses_nothing() -> None:
    assert after_deaths(None, None, None, isolated_from=3).culprits == ()


def test_a_shard_that_dies_before_its_first_item_is_given_up_whole() -> None:
    assert after_deaths(None, None, None).culprits == tuple(ITEMS)


def test_a_shard_with_many_culprits_is_given_up_whole() -> None:
    assert after_deaths(None, None, *range(40, 45)).culprits == tuple(range(40, 45))
    assert after_deaths(None, None, *range(40, 46)).culprits == tuple(ITEMS)


def test_a_claim_tells_the_next_worker_of_the_deaths_before() -> None:
    lease = after_deaths(None, None, 44)
    assert decode_lease(lease.encoded()) == lease
    assert lease.item is None
