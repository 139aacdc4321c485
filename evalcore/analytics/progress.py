"""What the parts committed so far say: finished items, what they used, what limits prevented."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.analytics.named import read_rows, run_query
from evalcore.model.exchange import ErrorKind
from evalcore.model.run import REFUSED
from evalcore.sql.connection import connect, literal_path


class Tally(NamedTuple):
    """Finished items by what became of them."""

    done: int = 0
    passed: int = 0
    failed: int = 0
    blocked: int = 0
    errors: int = 0
    skipped: int = 0
    cancelled: int = 0

    def plus(self, other: Tally) -> Tally:
        """Return the sums of both."""
        return Tally(*(amount + more for amount, more in zip(self, other, strict=True)))


class Used(NamedTuple):
    """US dollars, tokens, and the seconds in which at least one item was at work."""

    cost_usd: float = 0.0
    tokens: int = 0
    busy_s: float = 0.0


def tally(parts: Sequence[Path]) -> Tally:
    """Return the items in these result parts."""
    return Tally(*_totals("progress", parts))


def used_by(parts: Sequence[Path]) -> Used:
    """Return what the items in these result parts have used."""
    return Used(*_totals("spent", parts))


def _totals(query: str, parts: Sequence[Path]) -> tuple[Any, ...]:
    """Return the one row of a query over result parts, () without any part."""
    files = [literal_path(part) for part in parts]
    return read_rows(connect(), query, files=files)[0] if files else ()


_REFUSALS = (ErrorKind.AUTHENTICATION, ErrorKind.CREDIT)
PreventedRow = tuple[str, str, str | None, str | None, str | None]
_ROWS = 10_000


def prevented_rows(
    runs: Sequence[Sequence[Path]], kinds: Collection[str]
) -> Iterator[PreventedRow]:
    """Yield execution key, status, reason, and the error's kind and message.

    `runs` are the result parts of each run, the newest run first: of each item the newest run that
    has it decides. `kinds` are the errors that limits make.
    """
    files = [(rank, literal_path(path)) for rank, parts in enumerate(runs) for path in parts]
    if not files:
        return
    ranks, paths = map(list, zip(*files, strict=True))
    cursor = run_query(connect(), "prevented", files=paths, ranks=ranks, kinds=list(kinds))
    while rows := cursor.fetchmany(_ROWS):
        yield from rows


def refused_shards(parts: Sequence[Path]) -> tuple[int, ...]:
    """Return the shards of a run that a provider ended, of those whose results are `parts`.

    They hold items that were not tried, or that it refused. None if no item was left out for it.
    """
    if not parts:
        return ()
    files, kinds = [literal_path(path) for path in parts], list(map(str, _REFUSALS))
    rows = read_rows(connect(), "refused", files=files, reason=REFUSED, kinds=kinds)
    return tuple(shard for (shard,) in rows)
