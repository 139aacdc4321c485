"""PLAN: a loaded suite becomes a run in the store."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from evalcore.errors import UsageError
from evalcore.model.identity import code_names, target_code
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.run import PLANNING, Manifest, Plan, State
from evalcore.model.suite import EvidencePolicy, Suite, SuiteDefinition, quarantine_on
from evalcore.model.target import DEFAULT_VARIANT
from evalcore.pipeline.acceptance import sign_plan
from evalcore.pipeline.compare import settle_baseline
from evalcore.pipeline.reuse import freeze_past_runs, prepare_reuse
from evalcore.pipeline.states import check_observers, warn_on_standard_error
from evalcore.planning.shards import (
    PILOT_ITEMS,
    SINGLE_ITEM_LIMIT,
    count_shards,
    has_single_items,
    plan_rounds,
    shard_size,
)
from evalcore.planning.spool import PART_CASES
from evalcore.storage.layout import iso_time, new_run_id
from evalcore.storage.manifests import Seal, frozen_fields
from evalcore.storage.runs import CALIBRATION, FILTERS, StoredRun, find_run, list_runs, open_run
from evalcore.storage.store import ObjectStore
from evalcore.targets.registry import SCRIPT
from evalcore.targets.registry import is_instant as is_instant_target
from evalcore.trust.plan_keys import read_plan_keys
from evalcore.version import VERSION

DEFAULT_CONCURRENCY = 16
# Small in-process runs of given outputs gain nothing from more shards.
_MIN_LOCAL_SHARD_ITEMS = 1_000
_GUESSED_LATENCY_S = 1.0

ANNOTATION_SINCE = "annotation_since"
"""In a manifest's settings: when people could begin to answer, if that was in an earlier run."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is cut: `workers` share it; `single_items` names each case of a small run.

    `reuse` says where evidence is taken from instead of executing: `HISTORY`, or
    the id of a run whose evidence is graded again and nothing is executed; None executes all.
    `isolation` says where the suite's Python runs; None leaves it to who executes.
    `run_id` is the id of the run (`new_run_id`), so that it is known before the run exists.
    `seed` is that of the random order of a run that stops early; None draws one.
    `is_stored` says that the suite is that of the run `reuse`: its code is not read again.
    `calibrates`: the run asks judges about labels and is no run of a suite. `warn`
    is told what people should know.
    """

    mode: str = Mode.LIVE
    workers: int = 1
    single_items: bool = False
    reuse: str | None = None
    isolation: str | None = None
    run_id: str | None = None
    seed: int | None = None
    is_stored: bool = False
    calibrates: bool = False
    warn: Callable[[str], None] = warn_on_standard_error

    def __post_init__(self) -> None:
        if self.mode not in set(Mode):
            raise UsageError(f"unknown mode '{self.mode}'; known: {', '.join(Mode)}")


def plan_size(suite: Suite, options: PlanOptions, *, latency_s: float | None) -> Plan:
    """Return the frozen size of a run of the suite; `latency_s` is what history knows."""
    definition = suite.definition
    cases, iterations = len(suite.cases), definition.policy.iterations
    items = cases * len(definition.variants) * iterations
    if not items:
        raise UsageError(f"suite '{definition.name}': no case is selected; check the filters")
    instant = is_instant(definition)
    guess = 0.0 if instant else _GUESSED_LATENCY_S
    concurrency = definition.limits.concurrency or DEFAULT_CONCURRENCY
    by_round = definition.policy.auto_iterations
    pilot = 0
    if latency_s is None and guess and not by_round and items > SINGLE_ITEM_LIMIT:
        # So many that no place is empty while the first of them show how long an item takes.
        pilot = max(PILOT_ITEMS, min(2 * concurrency, items // 2))
    size = shard_size(
        items,
        concurrency=concurrency,
        latency_s=guess if latency_s is None else latency_s,
        workers=options.workers,
        single_items=options.single_items and has_single_items(items, is_instant=instant),
        min_items=1 if options.single_items or options.workers > 1 else _MIN_LOCAL_SHARD_ITEMS,
    )
    plan = Plan(
        items=items,
        cases=cases,
        variants=len(definition.variants),
        iterations=iterations,
        shards=count_shards(items, size, pilot),
        shard_size=size,
        parts=-(-cases // PART_CASES),
        part_cases=PART_CASES,
        pilot=pilot,
        settled=not pilot,
    )
    return plan_rounds(plan) if by_round else plan


def is_instant(definition: SuiteDefinition) -> bool:
    """Whether no target of the suite calls anything: its items take no time."""
    return all(map(is_instant_target, definition.targets.values()))


def plan_run(
    suite: Suite, store: ObjectStore, options: PlanOptions | None = None, *, now: datetime
) -> StoredRun:
    """Create a run in the store: its manifest first, then its whole plan."""
    options = options or PlanOptions()
    if suite.definition.reuse and options.reuse is None and options.mode is not Mode.REPLAY:
        options = replace(options, reuse=HISTORY)
    check_observers()
    earlier = None if options.reuse in {None, HISTORY} else find_run(store, str(options.reuse))
    definition = suite.definition
    if not options.is_stored:
        definition = with_code(suite, earlier)
    elif definition.executed_code is None:
        definition = replace(definition, executed_code=definition.code)
    suite = replace(suite, definition=definition)
    baseline = settle_baseline(store, definition)
    past = freeze_past_runs(store, suite, options.mode, earlier)
    quarantine = quarantine_on(suite.quarantine, definition.name, now.astimezone(UTC).date())
    latency_s = 0.0 if earlier is not None else _latency_in_history(store, definition)
    plan = plan_size(suite, options, latency_s=latency_s)
    graded = None if earlier is None else earlier.manifest()
    order: dict[str, Any] | None = None
    if definition.policy.ends_when_decided:
        from evalcore.pipeline import early_stop

        early_stop.require_early_gates(definition, len({case.group for case in suite.cases}))
        if not definition.policy.auto_iterations:
            known = {} if graded is None else graded.settings.get("order") or {}
            seed = options.seed if graded is None else known.get("seed")
            suite, order = early_stop.in_stopping_order(suite, seed)
            plan = early_stop.stopping_plan(plan)
    run_id = options.run_id or new_run_id(now, os.urandom(3))
    run = open_run(store, definition.name, run_id)
    asked_since = graded and (graded.settings.get(ANNOTATION_SINCE) or graded.created_at)
    is_full = definition.evidence is EvidencePolicy.FULL
    told = {
        "datasets": [asdict(source) for source in definition.datasets],
        "order": order,
        "history": past and past.runs.settings(),
        "quarantine": quarantine and quarantine.settings(),
        ANNOTATION_SINCE: asked_since,
        # Only what is unusual.
        "evidence": None if is_full else str(definition.evidence),
        FILTERS: definition.part,
        CALIBRATION: options.calibrates,
    }
    manifest = Manifest(
        id=run.run_id,
        suite=definition.name,
        format=definition.format,
        state=State.RUNNING,
        mode=str(options.mode),
        created_at=iso_time(now),
        source={"path": definition.source.path, "sha256": definition.source.sha256},
        plan=plan,
        settings={
            "concurrency": definition.limits.concurrency,
            "timeout_s": definition.limits.timeout_s,
            "workers": options.workers,
            "reuse": options.reuse,
            "isolation": options.isolation,
            "git": git_state(Path(definition.source.folder)),
            "latency_s": latency_s,
            "baseline": baseline,
            **{name: value for name, value in told.items() if value},
        },
        engine={"evalcore": VERSION},
        execution={PLANNING: True},
    )
    keys = read_plan_keys(os.environ)
    run.create(manifest)
    parts = run.write_plan(definition, suite.cases)
    if past is not None:
        parts |= past.write(run)
    if options.reuse is not None:
        digests, reused = prepare_reuse(run, suite, plan, options.reuse, options.warn)
        parts |= digests
        if reused:
            manifest = replace(manifest, settings={**manifest.settings, **reused})
    seal = Seal(frozen_fields(manifest), parts)
    sign_plan(run, seal, keys)
    # Written last: a run that still says `PLANNING` has a plan that lacks something.
    run.update(lambda stored: replace(stored, settings=manifest.settings, execution={}))
    run = replace(run, seal=seal)
    # What executes is what stands in the store, here as in any other process.
    return run if run.is_sealed(definition) else replace(run, known_definition=definition)


_STATUS_TIMEOUT_S = 2.0
_COMMITS: Final = ("GITHUB_SHA", "CI_COMMIT_SHA")
_BRANCHES: Final = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")


def git_state(folder: Path) -> dict[str, Any]:
    """Return commit and branch of the folder's repository, and whether its files are `dirty`.

    Tracked files of the folder count. What `git` does not say in two seconds (a detached head, no
    repository) is what the environment of GitHub Actions and GitLab CI says, else None.
    """
    # No monitor of the repository's configuration is started, and no lock is taken.
    options = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    kinds = ("--untracked-files=no", "--ignore-submodules=dirty")
    heads: dict[str, str] = {}
    dirty = None
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(
            ["git", *options, "status", "--porcelain=v2", "--branch", *kinds, "--", "."],  # noqa: S607
            cwd=folder,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_STATUS_TIMEOUT_S,
            check=True,
        )
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
        dirty = any(not line.startswith("#") for line in lines)
    known = {name: text for name, text in heads.items() if not text.startswith("(")}
    return {
        "commit": known.get("branch.oid") or _first_set(_COMMITS),
        "branch": known.get("branch.head") or _first_set(_BRANCHES),
        "dirty": dirty,
    }


def _first_set(names: Sequence[str]) -> str | None:
    return next((text for name in names if (text := os.environ.get(name))), None)


def with_code(suite: Suite, regraded: StoredRun | None) -> SuiteDefinition:
    """Return the suite's definition with the digests of the code that it names.

    A run that is graded again (`regraded`) was executed by the code of its time.
    """
    definition = suite.definition
    names = set(suite.cases.code_names())
    for target in definition.targets.values():
        names.update(target_code(target, DEFAULT_VARIANT))
        # The tests of a script suite are statements: the loader has listed what they import.
        for reference, *_ in target.options.get("imports") or () if target.kind == SCRIPT else ():
            names.update(code_names({"import_tool": reference}))
    for variant in definition.variants:
        names.update(target_code(None, variant))
    for scorer in definition.scorers:
        names.update(code_names(scorer.params))
    code: dict[str, str] = {}
    if names:
        from evalcore.trust.code_digests import CodeDigests

        code = CodeDigests(Path(definition.source.folder)).digests(names)
    if regraded is None:
        return replace(definition, code=code)
    earlier = regraded.definition
    executed = earlier.code if earlier.executed_code is None else earlier.executed_code
    return replace(definition, code=code, executed_code=executed)


def _latency_in_history(store: ObjectStore, definition: SuiteDefinition) -> float | None:
    """Return the median item latency (seconds) that the suite's last run measured, None if none.

    Where no target calls anything, no run is asked for one.
    """
    if is_instant(definition):
        return None
    newest = next(iter(list_runs(store, definition.name)), None)
    measured = None if newest is None else newest.execution.get("p50_latency_ms")
    # Instant answers (another target, other fixtures) say nothing of targets that call something.
    return measured / 1000 if measured is not None and measured >= 1 else None
