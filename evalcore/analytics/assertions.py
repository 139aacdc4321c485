"""How often each assertion of a run passes and fails."""

from __future__ import annotations

from typing import Final, NamedTuple

from evalcore.analytics.named import Connection, read_rows

_MOST_NAMES: Final = 1_000


class AssertionCounts(NamedTuple):
    """The results of one assertion. `score` is their mean, `judges` are joined by commas.

    `name` is None for a type whose assertions have a name of their own in each case: together.

    `compared` of them stand beside an answer of people about the same item, `disagreed` of these
    say otherwise than the people.
    """

    name: str | None
    type: str
    block: str | None
    results: int
    passed: int
    failed: int
    blocked: int
    errors: int
    score: float | None
    judges: str | None
    compared: int
    disagreed: int

    @property
    def not_passed_share(self) -> float:
        """The share of the results that failed or ended in error; pages show it."""
        return (self.failed + self.errors) / self.results

    @property
    def always_passes(self) -> bool:
        """Whether it has passed each time: it tells no output from any other."""
        return self.passed == self.results

    @property
    def disagreement(self) -> float | None:
        """The share of the compared results that disagree with people; None without any."""
        return self.disagreed / self.compared if self.compared else None


def run_assertion_counts(connection: Connection) -> tuple[AssertionCounts, ...]:
    """Return the assertions of the run whose result files the connection has as `files`.

    Those that fail most come first.
    """
    rows = read_rows(connection, "assertion_counts", most_names=_MOST_NAMES)
    return tuple(AssertionCounts(*row) for row in rows)
