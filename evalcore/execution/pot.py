"""A run's budget, shared by lanes: each is granted blocks of it, and nothing is granted twice.

What has been granted stands in one object, changed by compare-and-swap. A lane that ends gives
back what it has not spent; what a dead lane was granted counts as spent, so that all lanes together
never spend more than the budget (docs/decisions/0020-lanes.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import orjson

from evalcore.errors import StoreError
from evalcore.execution.budget import Budget, Refill, Spent
from evalcore.storage.runs import StoredRun

# A lane takes half of its equal share at a time, and more when half of that is left.
_BLOCKS_PER_SHARE = 2
_LOW = 0.5
_SWAPS = 50
_Ledger = dict[str, Any]


class Pot:
    """One lane's access to the budget. `spent` is what the committed rows have used."""

    def __init__(self, run: StoredRun, lane: str, *, lanes: int, spent: Spent) -> None:
        self._run = run
        # A lane that is started again under its name must not forget what it was granted before.
        self._lane = f"{lane} {uuid4().hex}"
        limits = run.definition.limits
        self._limits = (limits.max_cost_usd, limits.max_tokens)
        new = {"spent": list(spent), "granted": {}}
        run.store.put_if_absent(run.keys.pot, orjson.dumps(new))
        base = self._read()[0]["spent"]
        usd = max(0.0, (limits.max_cost_usd or 0.0) - base[0])
        tokens = max(0, (limits.max_tokens or 0) - base[1])
        parts = lanes * _BLOCKS_PER_SHARE
        self._block = Spent(usd / parts, -(-tokens // parts))

    def budget(self) -> Budget:
        """Return this lane's budget: a first block, and more as long as there is any."""
        max_cost_usd, max_tokens = self._limits
        low = Spent(self._block.cost_usd * _LOW, int(self._block.tokens * _LOW))
        budget = Budget(
            max_cost_usd=None if max_cost_usd is None else 0.0,
            max_tokens=None if max_tokens is None else 0,
            refill=Refill(self._take, low),
        )
        budget.rise()
        return budget

    def leave(self, budget: Budget | None) -> None:
        """Give back what the lane has been granted and has not spent."""
        if budget is None:
            return

        def settle(ledger: _Ledger) -> bool:
            ledger["granted"][self._lane] = list(budget.spent)
            return True

        with suppress(StoreError):  # it counts as spent, then
            self._change(settle)

    def _take(self) -> Spent | None:
        """Take a block, or what is left of one; None if nothing is left, or the store is silent."""
        taken: list[Spent] = []

        def take(ledger: _Ledger) -> bool:
            more = self._free(ledger)
            taken[:] = [more]
            if more == Spent():
                return False
            mine = ledger["granted"].get(self._lane, [0.0, 0])
            ledger["granted"][self._lane] = [mine[0] + more.cost_usd, mine[1] + more.tokens]
            return True

        try:
            self._change(take)
        except StoreError:
            return None
        return None if taken[0] == Spent() else taken[0]

    def _free(self, ledger: _Ledger) -> Spent:
        """Return the next block."""
        granted = [ledger["spent"], *ledger["granted"].values()]
        max_cost_usd, max_tokens = self._limits
        usd, tokens = 0.0, 0
        if max_cost_usd is not None:
            usd = min(self._block.cost_usd, max_cost_usd - sum(entry[0] for entry in granted))
        if max_tokens is not None:
            tokens = min(self._block.tokens, max_tokens - sum(entry[1] for entry in granted))
        # Sums of shares have rounding errors, which are no money.
        least = (max_cost_usd or 0.0) * 1e-9
        if (max_cost_usd is not None and usd <= least) or (max_tokens is not None and tokens <= 0):
            return Spent()
        return Spent(usd, tokens)

    def _read(self) -> tuple[_Ledger, str]:
        stored = self._run.store.get(self._run.keys.pot)
        ledger: _Ledger = orjson.loads(stored.data)
        return ledger, stored.etag

    def _change(self, change: Callable[[_Ledger], bool]) -> None:
        """Change the ledger, unless `change` says that there is nothing to change."""
        for _ in range(_SWAPS):
            ledger, etag = self._read()
            if not change(ledger):
                return
            data = orjson.dumps(ledger)
            if self._run.store.compare_and_swap(self._run.keys.pot, data, etag) is not None:
                return
        raise StoreError(f"{self._run.keys.pot}: the ledger is changed all the time")
