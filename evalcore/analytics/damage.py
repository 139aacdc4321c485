"""Which of a run's result parts do not hold the rows of their shard, and what is wrong there."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import _duckdb as duckdb

from evalcore.analytics.named import first_value, query_text
from evalcore.errors import Damage
from evalcore.model.run import StoredPart
from evalcore.sql.columns import FIRST_COLUMNS
from evalcore.sql.connection import connect, literal_path

_HASHERS = 4
_FILES_FOR_THREADS = 8
_COLUMNS = frozenset(column.name for column in FIRST_COLUMNS)
# Hashing a row reads every column of it.
_READ = "SELECT count(hash(row)) FROM read_parquet($1, hive_partitioning = false) AS row"
_DESCRIBE = "DESCRIBE SELECT * FROM read_parquet($1, hive_partitioning = false)"
# Reading several files together makes NULLs of a column that one of them lacks.
_COLUMNS_OF_FILES = (
    "SELECT file_name, list_distinct(list(split_part(path_in_schema, ', ', 1))) "
    "FROM parquet_metadata(getvariable('files')) GROUP BY file_name"
)
_DISTINCT = "SELECT count(DISTINCT item) FROM read_parquet($1, hive_partitioning = false)"


def stored_parts(files: Mapping[int, Path], shards: Mapping[int, range]) -> list[StoredPart]:
    """Return the rows and the digest of the parts (by shard, in order) as they are now."""
    if len(files) < _FILES_FOR_THREADS:
        digests = [_digest(path) for path in files.values()]
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_HASHERS) as hashers:
            digests = list(hashers.map(_digest, files.values()))
    rows = (len(shards[shard]) for shard in files)
    return [StoredPart(count, digest) for count, digest in zip(rows, digests, strict=True)]


def changed_parts(
    files: Mapping[int, Path], now: Sequence[StoredPart], final: Sequence[StoredPart]
) -> list[int]:
    """Return the shards whose parts are not those that the run ended with."""
    return [shard for shard, part in zip(files, now, strict=True) if part != final[shard]]


def suspicious_parts(files: Mapping[int, Path], shards: Mapping[int, range]) -> list[int]:
    """Return the shards whose parts cannot hold one row for each item; all if one is unreadable.

    Items that stand twice in the place of others are not noticed: each row counts.
    """
    connection = connect()
    paths = [literal_path(path) for path in files.values()]
    try:
        connection.execute("SET VARIABLE files = $1", [paths])
        rows = connection.execute(query_text("part_rows")).fetchall() if paths else []
        columns = dict(connection.execute(_COLUMNS_OF_FILES).fetchall()) if paths else {}
    except duckdb.Error:
        return list(files)
    by_file = {name: counts for name, *counts in rows}
    return [
        shard
        for shard, path in files.items()
        if by_file.get(str(path))
        != [len(shards[shard]), 0, shards[shard].start, shards[shard].stop - 1]
        or not _COLUMNS.issubset(columns[str(path)])
    ]


def describe_parts(
    files: Mapping[int, Path],
    shards: Mapping[int, range],
    suspects: Collection[int],
    changed: Collection[int],
) -> list[Damage]:
    """Return what is wrong with the parts of some shards, in the order of the shards.

    The digests of the `changed` ones differ from those that the run ended with.
    """
    damages = []
    for shard in sorted(suspects):
        damage = describe_part(shard, files[shard], shards[shard])
        if damage is None and shard in changed:
            damage = Damage(f"shard {shard}", "is not as the run ended (its digest differs)", shard)
        if damage is not None:
            damages.append(damage)
    return damages


def describe_part(shard: int, path: Path, items: range) -> Damage | None:
    """Return what is wrong with a shard's part, None if it has one row for each item."""
    try:
        reason = _wrong(path, items)
    except duckdb.Error:
        reason = "is no whole Parquet file"
    return None if reason is None else Damage(f"shard {shard}", reason, shard)


def _wrong(path: Path, items: range) -> str | None:
    file, connection = literal_path(path), connect()
    columns = {name for name, *_ in connection.execute(_DESCRIBE, [file]).fetchall()}
    if missing := sorted(_COLUMNS - columns):
        return f"has no column {missing[0]!r}"
    connection.execute(_READ, [file]).fetchall()
    connection.execute("SET VARIABLE files = $1", [[file]])
    counted = connection.execute(query_text("part_rows")).fetchone()
    if counted is None or counted[1] != len(items):
        return f"has {0 if counted is None else counted[1]} of {len(items)} rows"
    _, _, nulls, first, last = counted
    if nulls:
        return f"has {nulls} of {len(items)} rows without an item, a case, a variant or a state"
    if (first, last) != (items.start, items.stop - 1):
        return f"holds the items {first} to {last} instead of {items.start} to {items.stop - 1}"
    distinct = first_value(connection, _DISTINCT, [file])
    if distinct != len(items):
        return f"has rows of {distinct} of {len(items)} items"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
