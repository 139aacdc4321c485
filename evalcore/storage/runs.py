"""A run in the store: its manifest, its plan, its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from evalcore.errors import (
    Damage,
    DamagedRunError,
    ObjectNotFoundError,
    RunConflictError,
    RunGoneError,
    RunNotFoundError,
    StoreError,
)
from evalcore.model.annotation import AwaitedLabels
from evalcore.model.run import DECIDED, NOT_FOR_TARGET, Manifest, Plan, State
from evalcore.model.scoring import reaches
from evalcore.model.suite import Case, CaseSource, SuiteDefinition
from evalcore.model.summary import Counts
from evalcore.planning.spool import PlanPart, PlanPartError, part_inputs
from evalcore.redaction.redactor import PROCESS
from evalcore.redaction.sealing import seal_document, unseal
from evalcore.storage.layout import (
    RUNS_PREFIX,
    NameKey,
    RunKeys,
    annotations_prefix,
    parse_shard_key,
    run_created_at,
    runs_prefix,
    suite_key,
)
from evalcore.storage.manifests import Seal, digest_of, encode_manifest, parse_manifest
from evalcore.storage.store import ObjectStore, StoredObject, swap, transfer
from evalcore.trust.machine_faults import temporary_folder
from evalcore.trust.secrets import suite_variables
from evalcore.wording import counted

_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


@dataclass(slots=True)
class _LastManifest:
    """The manifest as this process has read or written it last: a change begins with it."""

    stored: StoredObject | None = None


@dataclass(frozen=True)
class StoredRun:
    """One run in one store. After planning, its definition is known without a read.

    With a `seal` everything that is read of the plan has to be what was planned: else it raises
    `DamagedRunError`.
    """

    store: ObjectStore
    keys: RunKeys
    known_definition: SuiteDefinition | None = field(default=None, repr=False, compare=False)
    seal: Seal | None = field(default=None, repr=False, compare=False)
    last_manifest: _LastManifest = field(default_factory=_LastManifest, repr=False, compare=False)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.keys.run_id

    def create(self, manifest: Manifest) -> None:
        """Write the manifest; raise `RunConflictError` if the run exists already."""
        data = encode_manifest(manifest)
        etag = self.store.put_if_absent(self.keys.manifest, data)
        if etag is None:
            raise RunConflictError(f"run {self.run_id} exists already in {self.store.url}")
        self.last_manifest.stored = StoredObject(data, etag)

    def manifest(self) -> Manifest:
        """Return the manifest; raise `DamagedRunError` if it is none, `StoreError` for another
        version's, `RunGoneError` if it is not there any more.
        """
        try:
            stored = self.last_manifest.stored = self.store.get(self.keys.manifest)
        except ObjectNotFoundError as error:
            raise RunGoneError(self.run_id, self.store.url) from error
        manifest = parse_manifest(stored.data, self.keys)
        if self.seal is not None:
            self.seal.check_manifest(manifest)
        return manifest

    def known_manifest(self) -> Manifest:
        """Return the manifest as this process has read or written it last; else read it."""
        stored = self.last_manifest.stored
        return self.manifest() if stored is None else parse_manifest(stored.data, self.keys)

    def update(self, change: Callable[[Manifest], Manifest]) -> Manifest:
        """Change the manifest by compare-and-swap; `change` is called again after a lost race.

        Its first attempt is made on the manifest that this process has read or written last.
        """
        changed: Manifest

        def encoded(data: bytes | None) -> bytes:
            nonlocal changed
            if data is None:
                raise RunGoneError(self.run_id, self.store.url)
            changed = change(parse_manifest(data, self.keys))
            return encode_manifest(changed)

        last = self.last_manifest
        try:
            last.stored = swap(
                self.store,
                self.keys.manifest,
                encoded,
                seen=last.stored or "unread",
                label=f"the manifest of run {self.run_id}",
            )
        except BaseException:  # the manifest may have been written all the same: it is read again
            last.stored = None
            raise
        return changed

    def is_sealed(self, definition: SuiteDefinition) -> bool:
        """Whether the definition in the store has to differ from this one: it holds a secret."""
        return PROCESS.knows and PROCESS.holds(orjson.dumps(definition), encoded=False)

    def write_plan(self, definition: SuiteDefinition, cases: CaseSource) -> dict[str, str]:
        """Write the suite and its cases; parts that are there already stay.

        Returns the digests of what was to be written, by the part's name below `plan/`.
        """
        suite = seal_document(orjson.dumps(definition, option=_INDENTED))
        parts = ((self.keys.plan_part(number), part) for number, part in enumerate(cases.parts()))
        return dict(
            transfer(self.store, self._write_part, chain([(self.keys.plan_suite, suite)], parts))
        )

    def _write_part(self, part: tuple[str, bytes]) -> tuple[str, str]:
        key, data = part
        self.store.put_if_absent(key, data)
        return key.removeprefix(self.keys.plan_prefix), digest_of(data)

    @cached_property
    def definition(self) -> SuiteDefinition:
        """The suite without its cases, as it was planned; raises `DamagedRunError`."""
        if self.known_definition is not None:
            return self.known_definition
        data = self.plan_object(self.keys.plan_suite)
        try:
            return _definitions().validate_json(_opened_suite(data))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            reason = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        except (ValueError, TypeError, AttributeError) as error:
            reason = str(error)
        raise self._damaged(self.keys.plan_suite, f"is no suite: {reason}")

    def plan_part(self, number: int) -> bytes:
        """Return one part of the cases as it was written; raise `DamagedRunError`."""
        return self.plan_object(self.keys.plan_part(number))

    def cases(self, number: int, plan: Plan) -> list[Case]:
        """Return the cases of one part of the plan; raise `DamagedRunError`."""
        return self.cases_of(number, self.opened_part(number, plan))

    def all_cases(self, plan: Plan) -> Iterator[Case]:
        """Yield the plan's cases in their order; raise `DamagedRunError`."""
        for number in range(plan.parts):
            yield from self.cases(number, plan)

    def opened_part(
        self, number: int, plan: Plan, *, opened: bool = False, data: bytes | None = None
    ) -> PlanPart:
        """Return one part of the plan, for `cases_of`; raise `DamagedRunError`.

        `opened` as in `PlanPart`; `data` is the part if it has been read already (`plan_part`).
        """
        with self.part_damage(number):
            part = PlanPart(self.plan_part(number) if data is None else data, opened=opened)
        if len(part) != plan.cases_of_part(number):
            reason = f"has {len(part)} of {plan.cases_of_part(number)} cases"
            raise self._damaged(self.keys.plan_part(number), reason)
        return part

    def cases_of(self, number: int, part: PlanPart, positions: slice = slice(None)) -> list[Case]:
        """Return the cases at these positions of a part; raise `DamagedRunError`."""
        with self.part_damage(number):
            return part.cases(positions)

    @contextmanager
    def part_damage(self, number: int) -> Iterator[None]:
        """Raise `DamagedRunError` for what is wrong in this part of the plan."""
        try:
            yield
        except PlanPartError as error:
            raise self._damaged(self.keys.plan_part(number), str(error)) from error

    def case(self, number: int, plan: Plan) -> Case:
        """Return one case by its number in the plan; raise `DamagedRunError`."""
        part, position = divmod(number, plan.part_cases)
        return self.cases_of(part, self.opened_part(part, plan), slice(position, position + 1))[0]

    def inputs(self, number: int, positions: Collection[int] | None = None) -> list[Any]:
        """Return the inputs of the cases of one part of the plan, of those at `positions` from 0.

        Raises `DamagedRunError`.
        """
        with self.part_damage(number):
            return part_inputs(self.plan_part(number), positions)

    def plan_object(self, key: str) -> bytes:
        """Return any part of the plan as it was written; raise `DamagedRunError`."""
        try:
            data = self.store.get(key).data
        except ObjectNotFoundError as error:
            raise self._damaged(key, "is missing") from error
        if self.seal is not None:
            self.seal.check_part(key.removeprefix(self.keys.plan_prefix), data)
        return data

    def _damaged(self, key: str, reason: str) -> DamagedRunError:
        damage = Damage(key.removeprefix(self.keys.folder), reason)
        return DamagedRunError(self.run_id, (damage,))

    def written_shards(self) -> frozenset[int]:
        """Return the shards that have a result object."""
        shards = (parse_shard_key(info.key) for info in self.store.list(self.keys.results_prefix))
        return frozenset(shard for shard in shards if shard is not None)

    def is_decided(self) -> bool:
        """Whether a process has noted that the run's gates are decided."""
        return self.store.exists(self.keys.decided)

    def request_cancel(self) -> None:
        """Ask the processes that execute shards of the run to stop."""
        self.store.put_if_absent(self.keys.cancel, b"")

    def is_cancel_requested(self) -> bool:
        """Whether the run was asked to stop (`request_cancel`)."""
        return self.store.exists(self.keys.cancel)

    def are_results_dropped(self) -> bool:
        """Whether compaction has deleted the results: the history has their rows."""
        return self.store.exists(self.keys.results_dropped)

    def has_labels(self) -> bool:
        """Whether the run's suite has a label of people, at the cost of one listing."""
        return any(True for _ in self.store.list(annotations_prefix(self.keys.suite)))

    @contextmanager
    def result_files(self, plan: Plan, only: Collection[int] | None = None) -> Iterator[list[Path]]:
        """Give the files of the plan's result parts (of `only` these), in order.

        They are fetched first if the store is remote.
        """
        shards = [shard for shard in range(plan.shards) if only is None or shard in only]
        keys = [self.keys.result(shard) for shard in shards]
        if not self.store.is_remote:
            local = [self.store.local_path(key) for key in keys]
            yield [path for path in local if path is not None]
            return
        with temporary_folder("evalcore-results-") as folder:
            paths = [folder / f"{shard:05d}.parquet" for shard in shards]
            for _ in transfer(self.store, self._fetch, zip(keys, paths, strict=True)):
                pass
            yield paths

    def _fetch(self, copied: tuple[str, Path]) -> None:
        key, path = copied
        path.write_bytes(self.store.get(key).data)


def _opened_suite(data: bytes) -> bytes:
    """Return a plan's suite with the values of the variables that it may read.

    They come from the environment, else from the `.env` that belongs to the suite's folder. This
    process covers them from now on; a variable that is not set keeps its sign.
    """
    source = orjson.loads(data).get("source")
    folder = source.get("folder") if isinstance(source, dict) else None
    path = Path(folder) if isinstance(folder, str) and folder else None
    suite_variables(path if path is not None and path.is_dir() else None)
    return unseal(data)


_definitions = cache(lambda: TypeAdapter(SuiteDefinition))


def open_run(store: ObjectStore, suite: str, run_id: str) -> StoredRun:
    """Return the run of a suite (by the suite's name); nothing is read."""
    return StoredRun(store, RunKeys(suite_key(suite), run_id))


def find_run(store: ObjectStore, run_id: str) -> StoredRun:
    """Return the run with this id, of any suite; raise `RunNotFoundError`."""
    if run_created_at(run_id) is not None:
        for suite in store.list_folders(RUNS_PREFIX):
            run = StoredRun(store, RunKeys(NameKey(suite), run_id))
            if store.exists(run.keys.manifest):
                return run
    raise RunNotFoundError(f"no run {run_id!r} in {store.url}; `evalcore runs list` shows them")


@dataclass(frozen=True, slots=True)
class UnreadableRun:
    """A run whose manifest is damaged; `suite` is the key of its suite's name."""

    id: str
    suite: str
    reason: str


def list_runs(store: ObjectStore, suite: str | None = None) -> Iterator[Manifest]:
    """Yield the manifests of all runs (of one suite) that can be read, newest first."""
    return (run for run in list_all_runs(store, suite) if isinstance(run, Manifest))


def stored_runs(store: ObjectStore, suite: str | None = None) -> Iterator[RunKeys]:
    """Yield the keys of every run (of one suite), at the cost of one listing for each suite."""
    suites = [suite_key(suite)] if suite else map(NameKey, store.list_folders(RUNS_PREFIX))
    for name in suites:
        for run_id in store.list_folders(runs_prefix(name)):
            if run_created_at(run_id) is not None:
                yield RunKeys(name, run_id)


def list_all_runs(
    store: ObjectStore, suite: str | None = None
) -> Iterator[Manifest | UnreadableRun]:
    """Yield all runs (of one suite), newest first; those whose manifest is damaged as such."""
    listed = sorted(stored_runs(store, suite), key=lambda keys: keys.run_id, reverse=True)
    # An id tells the second only; within one the manifests know more.
    for _, same_second in groupby(listed, key=lambda keys: run_created_at(keys.run_id)):
        runs = list(_read_each(store, same_second))
        yield from sorted(runs, key=_created_at, reverse=True)


def _created_at(run: Manifest | UnreadableRun) -> str:
    return run.created_at if isinstance(run, Manifest) else ""


def _read_each(store: ObjectStore, listed: Iterable[RunKeys]) -> Iterator[Manifest | UnreadableRun]:
    """Yield those runs that have a manifest, unless it is of another version."""
    for keys in listed:
        with suppress(StoreError):
            try:
                yield StoredRun(store, keys).manifest()
            except DamagedRunError as error:
                yield UnreadableRun(keys.run_id, keys.suite, str(error.damages[0]))


PART: Final = "part"
"""The key of `Manifest.execution` with the reasons of a completed run, [] for a whole one."""
FILTERS: Final = "filters"
"""The key of `Manifest.settings` with the options that left out cases or variants, if any did."""
CALIBRATION: Final = "calibration"
"""The key of `Manifest.settings` of a run that asks judges about labels."""


def reasons_of_part(
    definition: SuiteDefinition, counts: Counts, skipped: Mapping[str, int]
) -> tuple[str, ...]:
    """Return why a run that has ended is of a part of its suite; () for a whole run.

    `skipped` has how many items were skipped by the reason.
    """
    reasons = [f"chosen by {option}" for option in definition.part]
    by_limit = {
        why: number for why, number in skipped.items() if why not in {DECIDED, NOT_FOR_TARGET}
    }
    if by_limit:
        reasons.append(f"{counted(sum(by_limit.values()), 'item')} skipped: {next(iter(by_limit))}")
    allowed = definition.policy.max_error_share or 0.0
    if counts.error and not reaches(allowed, counts.error / max(counts.planned, 1)):
        reasons.append(f"{counts.error} of {counted(counts.planned, 'item')} in error")
    return tuple(reasons)


def partial_reasons(manifest: Manifest) -> tuple[str, ...]:
    """Return why a run cannot stand for its suite; () for a completed run of the whole suite."""
    if CALIBRATION in manifest.settings:
        return ("it calibrates a judge",)
    if manifest.state is not State.COMPLETED:
        return (f"it is {manifest.state}",)
    return tuple(map(str, manifest.execution.get(PART, ())))


# `cases` is the last key of a report, and its head is one line.
_HEAD_END = b',"cases":['


class RunFigures(NamedTuple):
    """Score and pass rate from 0 to 1, the cost of the items; None where it was not measured.

    `interval` has the ends of the pass rate's 95 % interval, as the report has it: the variants of
    a case are one unit.
    """

    score: float | None = None
    pass_rate: float | None = None
    cost_usd: float | None = None
    interval: tuple[float, float] | None = None


def read_figures(manifest: Manifest) -> RunFigures:
    """Return the figures of a completed run; manifests of version 0.1 have none."""
    facts = manifest.execution
    score, rate, cost = (_number(facts.get(name)) for name in ("score", "pass_rate", "cost_usd"))
    match facts.get("pass_rate_interval"):
        case [float() | int() as low, float() | int() as high]:
            return RunFigures(score, rate, cost, (low, high))
    return RunFigures(score, rate, cost)


def read_awaited(run: StoredRun) -> AwaitedLabels | None:
    """Return the labels that a completed run was decided without; None if it lacked none."""
    try:
        awaiting = read_head(run)["awaiting"]
        return AwaitedLabels(awaiting["labels"], awaiting["items"])
    except (StoreError, ValueError, LookupError, TypeError, OSError):
        return None


def read_head(run: StoredRun) -> Any:
    """Return the report of a completed run without its cases."""
    path = run.store.local_path(run.keys.report)
    if path is None:
        line = run.store.get(run.keys.report).data.partition(b"\n")[0]
    else:
        with path.open("rb") as file:
            line = file.readline()
    return orjson.loads(line.rstrip().removesuffix(_HEAD_END) + b"}")


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
