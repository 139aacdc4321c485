"""What becomes of a shard whose worker's interpreter dies: it is isolated, its culprits are told.

A process that dies takes with it all that it had open. So a shard that was open at two deaths is
executed in a process of its own, one item after another, each noted in the claim before it begins.
The item noted at the next death is an error of its own; the others are executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from evalcore.execution.lanes.claims import Lease, decode_lease, unfinished_claims
from evalcore.model.run import Manifest
from evalcore.planning.expand import WorkItem
from evalcore.storage.runs import StoredRun

ISOLATED_AFTER_DEATHS = 2
_CULPRIT_AFTER_DEATHS = 3
# A shard whose items all kill their process must not cost one process for each.
_MOST_CULPRITS = 5


class Abandoned(NamedTuple):
    """The shards that an ended process leaves: `free` ones, and those to be `isolated`.

    A `hopeless` one has killed its process although none of its items was executed.
    """

    free: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    hopeless: tuple[int, ...] = ()

    @property
    def shards(self) -> tuple[int, ...]:
        """All of them."""
        return (*self.free, *self.isolated, *self.hopeless)


def abandon_claims(
    run: StoredRun, lane: str, death: str | None = None, *, isolated: bool = False
) -> Abandoned:
    """Let other lanes take over the shards of a lane whose process has ended, at once.

    `death` says how its interpreter died, None that it did not; `isolated` that it executed one
    shard, item by item. Raises `StoreError`.
    """
    plan = run.manifest().plan
    etags: dict[str, str] = {}
    left = Abandoned()
    for text in unfinished_claims(run):
        shard, key = int(text), run.keys.claim(int(text))
        stored = run.store.get(key)
        lease = decode_lease(stored.data)
        if lease.lane != lane:
            continue
        items = plan.shard_items(shard)
        hopeless = len(lease.culprits) == len(items)
        lease = (
            lease.renewed()
            if death is None
            else after_death(lease, death, items, isolated=isolated)
        )
        etag = run.store.compare_and_swap(key, lease.encoded(), stored.etag)
        if etag is None:  # another lane was faster
            continue
        if death is not None and hopeless:
            left = left._replace(hopeless=(*left.hopeless, shard))
        elif lease.deaths >= ISOLATED_AFTER_DEATHS:
            left = left._replace(isolated=(*left.isolated, shard))
        else:
            left = left._replace(free=(*left.free, shard))
            etags[text] = etag
    if etags:
        _note_abandoned(run, etags)
    return left


def _note_abandoned(run: StoredRun, etags: dict[str, str]) -> None:
    def noted(current: Manifest) -> Manifest:
        earlier = current.execution.get("abandoned_claims", {})
        return replace(
            current, execution={**current.execution, "abandoned_claims": {**earlier, **etags}}
        )

    run.update(noted)


def after_death(lease: Lease, death: str, items: range, *, isolated: bool) -> Lease:
    """Return the lease after its holder's interpreter died; `items` are those of the shard."""
    deaths, culprits = lease.deaths + 1, lease.culprits
    if deaths >= _CULPRIT_AFTER_DEATHS and isolated:
        if lease.item is None or len(culprits) >= _MOST_CULPRITS:
            culprits = tuple(items)
        elif lease.item not in culprits:
            culprits = (*culprits, lease.item)
    return lease.renewed()._replace(deaths=deaths, death=death, culprits=culprits)


def without_culprits(items: Sequence[WorkItem], lease: Lease) -> list[WorkItem]:
    """Return the items of a shard; those that have killed their process are errors of their own."""
    reason = (
        f"the worker's process died {_CULPRIT_AFTER_DEATHS} times while executing this shard, "
        f"the last time with this item ({lease.death})"
    )
    return [
        _not_executable(item, reason) if item.number in lease.culprits else item for item in items
    ]


def _not_executable(item: WorkItem, reason: str) -> WorkItem:
    case = item.case._replace(
        reason_not_executable=reason,
        fixture=None,
        block_fixtures=None,
        workspace=None,
        conversation=False,
    )
    return item._replace(case=case)
