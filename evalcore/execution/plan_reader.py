"""The cases of a run's shards, read from its plan; from a remote store before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from evalcore.model.run import Plan
from evalcore.model.suite import Case
from evalcore.planning.expand import cases_of_shard
from evalcore.planning.spool import PlanPart
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_READERS = 4


class PlanReader:
    """Reads the cases of shards. To be used by one thread at a time.

    A request to a remote store takes as long as thousands of instant items. So the parts of a shard
    are requested together, and before it is begun if it is known to be the next one (`request`).
    With `in_order` a process that begins a shard after the one before it is taken to go on so: the
    parts of the one after it are requested while its items run.
    """

    def __init__(self, run: StoredRun, *, in_order: bool = False) -> None:
        self._run = run
        self._in_order = in_order
        self._last: tuple[int, PlanPart] | None = None
        self._shard: int | None = None
        # The shard that is read now or was last, and the one after it.
        self._near: deque[int] = deque(maxlen=2)
        self._requested: dict[int, Future[bytes]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def request(self, plan: Plan, shard: int) -> None:
        """Begin to read the parts of a shard, and let go of what was requested for others.

        Those of the shard that was requested before it stay.
        """
        if not self._run.store.is_remote or shard >= plan.shards or shard in self._near:
            return
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="plan")
        self._near.append(shard)
        near = {part for each in self._near for part in _parts_of(plan, each)}
        near_parts = {number: part for number, part in self._requested.items() if number in near}
        for number in _parts_of(plan, shard):
            if number not in near_parts and (self._last is None or number != self._last[0]):
                near_parts[number] = self._threads.submit(self._run.plan_part, number)
        self._requested = near_parts

    def cases(self, plan: Plan, shard: int) -> list[Case]:
        """Return the cases of a shard; raise `DamagedRunError`.

        The last part is kept: the next shard may begin in it. Only the shard's cases are decoded.
        """
        cases: list[Case] = []
        for number, part, positions in self._parts(plan, shard):
            cases.extend(self._run.cases_of(number, part, positions))
        return cases

    def lines(self, plan: Plan, shard: int) -> Iterator[tuple[int, PlanPart, list[bytes]]]:
        """Yield the lines of a shard's cases, with each part's number and part: for its `decode`.

        Raises `DamagedRunError`. All are to be taken before anything else is read.
        """
        for number, part, positions in self._parts(plan, shard):
            yield number, part, part.lines(positions)

    def _parts(self, plan: Plan, shard: int) -> Iterator[tuple[int, PlanPart, slice]]:
        """Yield the parts that hold a shard: number, part, positions of the shard's cases in it."""
        numbers = cases_of_shard(plan, shard)
        for number in _parts_of(plan, shard):
            if self._last is None or self._last[0] != number:
                self._last = (number, self._part(plan, number))
            first = number * plan.part_cases
            start, stop = max(numbers.start - first, 0), min(numbers.stop - first, plan.part_cases)
            yield number, self._last[1], slice(start, stop)
        is_next = self._shard is not None and shard == self._shard + 1
        self._shard = shard
        if is_next and self._in_order:
            self.request(plan, shard + 1)

    def _part(self, plan: Plan, number: int) -> PlanPart:
        requested = self._requested.pop(number, None)
        data = None if requested is None else requested.result()
        return self._run.opened_part(number, plan, opened=True, data=data)


def _parts_of(plan: Plan, shard: int) -> range:
    numbers = cases_of_shard(plan, shard)
    return range(numbers.start // plan.part_cases, (numbers.stop - 1) // plan.part_cases + 1)
