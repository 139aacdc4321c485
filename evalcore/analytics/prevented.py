"""Which items of recorded runs a limit cut short."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from evalcore.analytics.named_queries import query_text
from evalcore.model.exchange import ErrorKind
from evalcore.model.run import REFUSED
from evalcore.sql.connection import connect, literal_path

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
    cursor = connect().execute(
        query_text("prevented"),
        {
            "files": [path for _, path in files],
            "ranks": [rank for rank, _ in files],
            "kinds": list(kinds),
        },
    )
    while rows := cursor.fetchmany(_ROWS):
        yield from rows


def refused_shards(parts: Sequence[Path]) -> tuple[int, ...]:
    """Return the shards of a run that a provider ended, of those whose results are `parts`.

    They hold items that were not tried, or that it refused. None if no item was left out for it.
    """
    if not parts:
        return ()
    rows = connect().execute(
        query_text("refused"),
        {
            "files": [literal_path(path) for path in parts],
            "reason": REFUSED,
            "kinds": list(map(str, _REFUSALS)),
        },
    )
    return tuple(shard for (shard,) in rows.fetchall())
