"""Whether what stands in the store is still the run: its manifest, its plan, each of its rows.

The counting invariant of a run, shard by shard, asked whenever a run is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from evalcore.errors import (
    Damage,
    DamagedRunError,
    EvalError,
    ResultsDroppedError,
    UnplannedRunError,
)
from evalcore.model.run import Manifest, Plan, State, StoredPart
from evalcore.model.suite import SuiteDefinition
from evalcore.planning.spool import PlanPartError, count_cases
from evalcore.storage.manifests import MANIFEST
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import at_once

_READERS = 8
_CASES = re.compile(r".*/plan/cases-(\d{5,})\.jsonl\.zst")


def verify_run(run: StoredRun, *, thorough: bool = True) -> tuple[Damage, ...]:
    """Return every damage of a run, in the order manifest, plan, shards; of an unfinished run
    the shards that have results. Raises `UnplannedRunError`: what was never there is not damaged.

    If not `thorough`, the parts of a run that is not final are not read column by column.
    """
    run = replace(run, known_definition=None)  # what stands in the store counts
    try:
        manifest = run.manifest()
    except DamagedRunError as error:
        return error.damages
    require_planned(manifest)
    damages = _plan_damages(run, manifest, thorough=True)
    if run.are_results_dropped():
        return tuple(sorted(damages, key=_in_order))
    written = run.written_shards()
    damages += _shard_damages(manifest, written)
    shards = sorted(written & set(range(manifest.plan.shards)))
    with run.result_files(manifest.plan, shards) as files:
        _, wrong = _examined(manifest, dict(zip(shards, files, strict=True)), thorough=thorough)
        if manifest.state is State.COMPLETED and not (damages or wrong):
            damages += _count_damages(manifest, _counted(files))
    return tuple(sorted((*damages, *wrong), key=_in_order))


def _in_order(damage: Damage) -> int:
    return -1 if damage.shard is None else damage.shard


def check_run(run: StoredRun) -> None:
    """Raise `DamagedRunError` with every damage of a run that is not whole."""
    if damages := verify_run(run):
        raise DamagedRunError(run.run_id, damages)


def require_planned(manifest: Manifest) -> None:
    """Raise `UnplannedRunError` if the process that planned the run died before the plan's end."""
    if not manifest.is_planned:
        raise UnplannedRunError(manifest.id)


def check_plan(run: StoredRun, manifest: Manifest, *, thorough: bool = True) -> None:
    """Raise `DamagedRunError` unless the plan is there and says what the manifest says.

    If not `thorough`, of the cases only the last part is read: enough where this process and its
    like have just read the others. Raises `UnplannedRunError` if it was never planned.
    """
    require_planned(manifest)
    if damages := _plan_damages(run, manifest, thorough=thorough):
        raise DamagedRunError(run.run_id, tuple(damages))


def check_shards(run: StoredRun, manifest: Manifest) -> None:
    """Raise `DamagedRunError` unless there is a result for each shard of the plan, and no other.

    Raises `ResultsDroppedError` if they were dropped by intent.
    """
    if damages := _shard_damages(manifest, run.written_shards()):
        if run.are_results_dropped():
            raise ResultsDroppedError(run.run_id)
        raise DamagedRunError(run.run_id, tuple(damages))


def check_parts(
    run: StoredRun, manifest: Manifest, files: Sequence[Path], *, thorough: bool = False
) -> tuple[StoredPart, ...]:
    """Return what the result parts are; raise `DamagedRunError` unless they hold the plan's items.

    The parts of a final run are those that it ended with, byte by byte. If not `thorough`, the
    parts of other runs may hold an item twice and lack another.
    """
    parts, damages = _examined(manifest, dict(enumerate(files)), thorough=thorough)
    if damages:
        raise DamagedRunError(run.run_id, tuple(damages))
    return parts


@contextmanager
def naming_damage(run: StoredRun, manifest: Manifest, files: Mapping[int, Path]) -> Iterator[None]:
    """Raise `DamagedRunError` if the context fails because these parts (by shard) are damaged."""
    try:
        yield
    except EvalError:
        raise
    except Exception:
        # DuckDB raises errors of many kinds for a torn file.
        _, damages = _examined(manifest, dict(files), thorough=True)
        if damages:
            raise DamagedRunError(run.run_id, tuple(damages)) from None
        raise


def check_counts(manifest: Manifest, counted: Mapping[str, int]) -> None:
    """Raise `DamagedRunError` unless the final counts are those of the rows."""
    if damages := _count_damages(manifest, counted):
        raise DamagedRunError(manifest.id, tuple(damages))


def _count_damages(manifest: Manifest, counted: Mapping[str, int]) -> list[Damage]:
    stored = manifest.counts or {}
    return [
        Damage(MANIFEST, f"counts {stored[name]} items {name}; the rows have {count}")
        for name, count in counted.items()
        if name in stored and stored[name] != count
    ]


def _counted(files: Sequence[Path]) -> dict[str, int]:
    """Return the counts of the rows, by the names that a manifest has for them."""
    from evalcore.analytics.progress import tally

    counts = tally(files)._asdict()
    counts["error"] = counts.pop("errors")
    ended = counts["error"] + counts["skipped"] + counts["cancelled"]
    return {**counts, "completed": counts.pop("done") - ended}


def _plan_damages(run: StoredRun, manifest: Manifest, *, thorough: bool) -> list[Damage]:
    plan = manifest.plan
    try:
        definition = run.definition
    except DamagedRunError as error:
        damages = list(error.damages)
    else:
        damages = _definition_damages(definition, manifest)
    numbers = range(plan.parts) if thorough else range(plan.parts - 1, plan.parts)
    with at_once(run.store) as starts:
        listed = starts(lambda: _listed_parts(run))
        counted = _counted_parts(run, plan, numbers)
        parts = listed()
    if surplus := parts - set(range(plan.parts)):
        count = plan.parts + len(surplus)
        damages.append(Damage(MANIFEST, f"plans {plan.parts} parts of cases; there are {count}"))
    missing = [number for number in range(plan.parts) if number not in parts | set(numbers)]
    damages += [Damage(_part_name(run, number), "is missing") for number in missing]
    return damages + [damage for damage in counted if damage is not None]


def _listed_parts(run: StoredRun) -> set[int]:
    keys = (info.key for info in run.store.list(f"{run.keys.folder}plan/cases-"))
    return {int(match[1]) for key in keys if (match := _CASES.fullmatch(key)) is not None}


def _counted_parts(run: StoredRun, plan: Plan, numbers: range) -> list[Damage | None]:
    """Return what is wrong with these parts of the plan, each of which is read."""
    if len(numbers) == 1:
        return [_part_damage(run, plan, number) for number in numbers]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(lambda number: _part_damage(run, plan, number), numbers))


def _definition_damages(definition: SuiteDefinition, manifest: Manifest) -> list[Damage]:
    plan = manifest.plan
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


def _part_damage(run: StoredRun, plan: Plan, number: int) -> Damage | None:
    """Return what is wrong with a part of the plan."""
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


def _shard_damages(manifest: Manifest, written: frozenset[int]) -> list[Damage]:
    """Return which shards lack a result in a final run, and which the plan does not have."""
    plan, damages = manifest.plan, list[Damage]()
    surplus = sorted(written - set(range(plan.shards)))
    if surplus and plan.settled:
        reason = f"plans {plan.shards} shards; there is a result of shard {surplus[0]}"
        damages.append(Damage(MANIFEST, reason))
    if manifest.state is State.COMPLETED:
        missing = sorted(set(range(plan.shards)) - written)
        damages += [Damage(f"shard {shard}", "has no result", shard) for shard in missing]
    return damages


def _examined(
    manifest: Manifest, files: dict[int, Path], *, thorough: bool
) -> tuple[tuple[StoredPart, ...], list[Damage]]:
    """Return what the parts are, and the damages of those that do not hold their shard's items."""
    from evalcore.analytics.damage import (
        changed_parts,
        describe_parts,
        stored_parts,
        suspicious_parts,
    )

    plan, final = manifest.plan, manifest.parts
    shards = {shard: plan.shard_items(shard) for shard in files}
    try:
        parts = stored_parts(files, shards)
    except FileNotFoundError:  # deleted since the listing
        deleted = [shard for shard, path in files.items() if not path.exists()]
        return (), [Damage(f"shard {shard}", "has no result", shard) for shard in deleted]
    changed = [] if final is None else changed_parts(files, parts, final)
    suspects = set(changed)
    if final is None:
        suspects |= set(files if thorough else suspicious_parts(files, shards))
    return tuple(parts), describe_parts(files, shards, suspects, changed)
