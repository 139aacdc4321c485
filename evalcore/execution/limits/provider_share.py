"""One process's part of a provider's limits."""

from __future__ import annotations

from typing import NamedTuple


class ProviderShare(NamedTuple):
    """One of `processes` equal parts; what cannot be divided goes to those of the lowest `rank`."""

    processes: int = 1
    rank: int = 0

    def of_calls(self, most: int) -> int:
        """Return how many of `most` calls at once are this part's."""
        return most // self.processes + (self.rank < most % self.processes)


WHOLE = ProviderShare()
