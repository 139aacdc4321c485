"""Whether a run is whole: its manifest, its plan, and in its result parts one row for each item.

Everything that reads a run asks here. What is not whole is told with its place; it is never read
as a smaller run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalcore.errors import (
    Damage,
    DamagedRunError,
    EvalError,
    ObjectNotFoundError,
    ResultsDroppedError,
    UnplannedRunError,
)
from evalcore.model.run import Manifest, Plan, State, StoredPart
from evalcore.planning.spool import PlanPartError, count_cases
from evalcore.storage.manifests import MANIFEST, read_signature
from evalcore.storage.runs import StoredRun, read_head
from evalcore.storage.store import transfer

_CASES = re.compile(r".*/plan/cases-(\d{5,})\.jsonl\.zst")


def require_planned(manifest: Manifest) -> None:
    """Raise `UnplannedRunError` if the process that planned the run died before the plan's end."""
    if not manifest.is_planned:
        raise UnplannedRunError(manifest.id)


def sealed(run: StoredRun) -> StoredRun:
    """Return a run whose plan is read with the digests of its signature, whoever has signed it.

    Raises `DamagedRunError` for a signature that is none.
    """
    if run.seal is not None:
        return run
    signed = read_signature(run.store, run.keys)
    return run if signed is None else replace(run, known_definition=None, seal=signed.seal)


def verify_run(run: StoredRun, *, deep: bool = True) -> tuple[Damage, ...]:
    """Return every damage of a run, in the order manifest, plan, shards; of an unfinished run
    the shards that have results. Raises `UnplannedRunError`: what was never there is not damaged.

    If `deep`, every column of the parts of an unfinished run is read; those of a completed run have
    digests.
    """
    run, damages = replace(run, known_definition=None), list[Damage]()
    try:
        run = sealed(run)
    except DamagedRunError as error:
        damages += error.damages
    try:
        manifest = run.manifest()
    except DamagedRunError as error:
        return (*error.damages, *damages)
    require_planned(manifest)
    damages += _plan_damages(run, manifest, thorough=True)
    if not run.are_results_dropped():
        plan, written = manifest.plan, run.written_shards()
        damages += _shard_damages(manifest, written)
        shards = sorted(written & set(range(plan.shards)))
        with run.result_files(plan, shards) as files:
            parts = dict(zip(shards, files, strict=True))
            damages += _part_damages(manifest, parts, deep=deep)
            if manifest.state is State.COMPLETED and not damages:
                damages += _count_damages(manifest, _counted(files))
    if manifest.state is State.COMPLETED:
        damages += _report_damages(run, manifest)
    return tuple(sorted(damages, key=lambda each: -1 if each.shard is None else each.shard))


def check_run(run: StoredRun) -> None:
    """Raise `DamagedRunError` with every damage of a run that is not whole.

    Raises `ResultsDroppedError` if its results were dropped by intent.
    """
    if damages := verify_run(run):
        raise DamagedRunError(run.run_id, damages)
    if run.are_results_dropped():
        raise ResultsDroppedError(run.run_id)


def check_plan(run: StoredRun, manifest: Manifest, *, thorough: bool = True) -> None:
    """Raise `DamagedRunError` unless the plan is there and says what the manifest says.

    If not `thorough`, of the cases only the last part is read: enough where this process and its
    like have just read the others. Raises `UnplannedRunError` if it was never planned.
    """
    require_planned(manifest)
    if damages := _plan_damages(run, manifest, thorough=thorough):
        raise DamagedRunError(run.run_id, tuple(damages))


@contextmanager
def whole_parts(
    run: StoredRun,
    manifest: Manifest,
    *,
    written: Collection[int] | None = None,
    only: Collection[int] | None = None,
) -> Iterator[dict[int, Path]]:
    """Give the files of a run's result parts by shard, in the order of the plan.

    Those of a completed run are all, of another one those that are committed, or `only` some of
    them; `written` are the shards that have results, if they have been listed already. Raises
    `DamagedRunError` if one is missing or does not hold the rows of its shard, also if the context
    fails for that, and `ResultsDroppedError` if they were dropped by intent.
    """
    if only is None:
        written = run.written_shards() if written is None else written
        if damages := _shard_damages(manifest, written):
            if run.are_results_dropped():
                raise ResultsDroppedError(run.run_id)
            raise DamagedRunError(run.run_id, tuple(damages))
        only = set(written) & set(range(manifest.plan.shards))
    with run.result_files(manifest.plan, only) as files:
        parts = dict(zip(sorted(only), files, strict=True))
        if damages := _part_damages(manifest, parts):
            raise DamagedRunError(run.run_id, tuple(damages))
        try:
            yield parts
        except EvalError:
            raise
        except Exception:
            # DuckDB raises errors of many kinds for a torn file.
            if damages := _part_damages(manifest, parts, deep=True):
                raise DamagedRunError(run.run_id, tuple(damages)) from None
            raise


def check_counts(manifest: Manifest, counted: Mapping[str, int]) -> None:
    """Raise `DamagedRunError` unless the counts of a completed run are those of its rows."""
    if damages := _count_damages(manifest, counted):
        raise DamagedRunError(manifest.id, tuple(damages))


def stored_parts(manifest: Manifest, parts: Mapping[int, Path]) -> tuple[StoredPart, ...]:
    """Return what the result parts are as the run becomes final: their rows and their digests."""
    rows = (len(manifest.plan.shard_items(shard)) for shard in parts)
    return tuple(map(StoredPart, rows, _digests(parts).values()))


def _digests(parts: Mapping[int, Path]) -> dict[int, str]:
    return {shard: _digest(path) for shard, path in parts.items()}


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:  # deleted since it was listed
        return ""


# The manifest


def _count_damages(manifest: Manifest, counted: Mapping[str, int]) -> list[Damage]:
    stored = manifest.counts or {}
    return [
        Damage(MANIFEST, f"counts {stored.get(name)} items {name}; the rows have {count}")
        for name, count in counted.items()
        if stored.get(name) != count
    ]


def _counted(files: Collection[Path]) -> dict[str, int]:
    """Return the counts of the rows, by the names that a manifest has for them."""
    from evalcore.analytics.results import tally

    counts = tally(tuple(files))._asdict()
    counts["error"], done = counts.pop("errors"), counts.pop("done")
    return counts | {"completed": done - counts["error"] - counts["skipped"] - counts["cancelled"]}


def _report_damages(run: StoredRun, manifest: Manifest) -> list[Damage]:
    """Return what is wrong with a completed run's report, as far as its head tells."""
    try:
        decision = read_head(run)["decision"]
    except ObjectNotFoundError:
        return [Damage("report.json", "is missing")]
    except (ValueError, LookupError, TypeError) as error:
        return [Damage("report.json", f"is no report: {error}")]
    if decision == manifest.decision:
        return []
    return [Damage(MANIFEST, f"says '{manifest.decision}'; report.json says '{decision}'")]


# The plan


def _plan_damages(run: StoredRun, manifest: Manifest, *, thorough: bool) -> list[Damage]:
    plan, damages = manifest.plan, list[Damage]()
    numbers = range(plan.parts) if thorough else range(plan.parts - 1, plan.parts)
    try:
        damages += _definition_damages(run, manifest)
    except DamagedRunError as error:
        damages += error.damages
    parts = _listed_parts(run)
    counted = list(
        transfer(run.store, lambda number: _plan_part_damage(run, plan, number), numbers)
    )
    surplus = sorted(parts - set(range(plan.parts)))
    reason = f"is one too many: the manifest plans {plan.parts}"
    damages += [Damage(_part_name(run, number), reason) for number in surplus]
    missing = sorted(set(range(plan.parts)) - parts - set(numbers))
    damages += [Damage(_part_name(run, number), "is missing") for number in missing]
    return damages + [damage for damage in counted if damage is not None]


def _definition_damages(run: StoredRun, manifest: Manifest) -> list[Damage]:
    plan, definition = manifest.plan, run.definition
    variants, iterations = len(definition.variants), definition.policy.iterations
    if (variants, iterations) != (plan.variants, plan.iterations):
        reason = (
            f"plans {plan.variants} variants × {plan.iterations} iterations; plan/suite.json has "
            f"{variants} × {iterations}"
        )
        return [Damage(MANIFEST, reason)]
    if (definition.name, str(definition.format)) != (manifest.suite, manifest.format):
        return [Damage(MANIFEST, "is of another suite than plan/suite.json")]
    return []


def _listed_parts(run: StoredRun) -> set[int]:
    keys = (info.key for info in run.store.list(f"{run.keys.folder}plan/cases-"))
    return {int(match[1]) for key in keys if (match := _CASES.fullmatch(key)) is not None}


def _plan_part_damage(run: StoredRun, plan: Plan, number: int) -> Damage | None:
    try:
        count = count_cases(run.plan_part(number))
    except PlanPartError as error:
        return Damage(_part_name(run, number), str(error))
    except DamagedRunError as error:
        return error.damages[0]
    if count == (planned := plan.cases_of_part(number)):
        return None
    return Damage(_part_name(run, number), f"has {count} cases; the manifest plans {planned}")


def _part_name(run: StoredRun, number: int) -> str:
    return run.keys.plan_part(number).removeprefix(run.keys.folder)


# The results


def _shard_damages(manifest: Manifest, written: Collection[int]) -> list[Damage]:
    """Return which shards lack a result in a completed run, and which the plan does not have."""
    plan, damages = manifest.plan, list[Damage]()
    surplus = sorted(set(written) - set(range(plan.shards)))
    if surplus and plan.settled:
        reason = f"plans {plan.shards} shards; there is a result of shard {surplus[0]}"
        damages.append(Damage(MANIFEST, reason))
    if manifest.state is State.COMPLETED:
        missing = sorted(set(range(plan.shards)) - set(written))
        damages += [_damage(shard, _NO_RESULT) for shard in missing]
    return damages


_NO_RESULT = "has no result"


def _damage(shard: int, reason: str) -> Damage:
    return Damage(f"shard {shard}", reason, shard)


def _part_damages(
    manifest: Manifest, parts: Mapping[int, Path], *, deep: bool = False
) -> list[Damage]:
    """Return what is wrong with the parts.

    Those of a completed run are what it ended with, byte by byte. Of an unfinished one the rows
    are looked at, if `deep` in every column.
    """
    final = manifest.parts
    if final is None:
        return [_damage(*wrong) for wrong in _wrong_rows(manifest.plan, parts, deep=deep).items()]
    changed = {
        shard: parts[shard]
        for shard, digest in _digests(parts).items()
        if digest != final[shard].sha256
    }
    reasons = _wrong_rows(manifest.plan, changed, deep=True)
    edited = "is not as the run ended (its digest differs)"
    return [_damage(shard, reasons.get(shard, edited)) for shard in changed]


def _wrong_rows(plan: Plan, parts: Mapping[int, Path], *, deep: bool) -> dict[int, str]:
    """Return, by shard, why parts cannot hold one row for each item of their shard."""
    import _duckdb as duckdb

    if not parts:
        return {}
    try:
        facts = _read_facts(list(parts.values()), deep=deep)
    except (duckdb.OutOfMemoryException, duckdb.InterruptException):
        raise
    except duckdb.Error:
        if len(parts) == 1:
            ((shard, path),) = parts.items()
            return {shard: "is no whole Parquet file" if path.exists() else _NO_RESULT}
        found: dict[int, str] = {}
        for shard, path in parts.items():  # one of them or several
            found |= _wrong_rows(plan, {shard: path}, deep=deep)
        return found
    reasons = {
        shard: _wrong(facts.get(str(path)), plan.shard_items(shard))
        for shard, path in parts.items()
    }
    return {shard: reason for shard, reason in reasons.items() if reason is not None}


# Hashing a row reads every column of it.
_READ_ALL = "SELECT count(hash(row)) FROM read_parquet($1, hive_partitioning = false) AS row"


def _read_facts(files: list[Path], *, deep: bool) -> dict[str, tuple[Any, ...]]:
    """Return what `part_rows.sql` says of each file, by its path."""
    from evalcore.analytics.named import query_text
    from evalcore.sql.columns import FIRST_COLUMNS
    from evalcore.sql.connection import connect, literal_path

    connection, columns = connect(), [column.name for column in FIRST_COLUMNS]
    connection.execute("SET VARIABLE columns = $1", [columns])
    connection.execute("SET VARIABLE files = $1", [list(map(literal_path, files))])
    lacking = dict(connection.execute(query_text("part_columns")).fetchall())
    facts = {name: (lacks, 0, 0, None, None, 0) for name, lacks in lacking.items() if lacks}
    if complete := [literal_path(path) for path in files if str(path) not in facts]:
        connection.execute("SET VARIABLE files = $1", [complete])
        if deep:
            connection.execute(_READ_ALL, [complete]).fetchall()
        rows = connection.execute(query_text("part_rows")).fetchall()
        facts |= {name: (None, *numbers) for name, *numbers in rows}
    return facts


def _wrong(facts: tuple[Any, ...] | None, items: range) -> str | None:
    """Return what is wrong with a part of which this is known; None for no row."""
    lacks, rows, nulls, first, last, distinct = facts or (None, 0, 0, None, None, 0)
    if lacks is not None:
        return f"has no column {lacks!r}"
    if rows != len(items):
        return f"has {rows} of {len(items)} rows"
    if nulls:
        return f"has {nulls} of {rows} rows without an item, a case, a variant or a state"
    if (first, last) != (items.start, items.stop - 1):
        return f"holds the items {first!r} to {last!r} instead of {items.start} to {items.stop - 1}"
    return None if distinct == rows else f"has rows of {distinct} of {rows} items"
