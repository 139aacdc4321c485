"""Which of a planned run's items need no execution: their evidence stands in earlier runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.analytics.reuse import PlannedItem, ReusableRows
from evalcore.errors import DamagedRunError, ResultsDroppedError
from evalcore.execution.reused_items import REUSE_ITEMS
from evalcore.model.identity import METADATA_APART_SINCE
from evalcore.model.mode import HISTORY
from evalcore.model.run import Plan, State
from evalcore.model.suite import EvidencePolicy, Suite
from evalcore.pipeline.asked_conversations import AskedConversations, is_asked_by_own_checks
from evalcore.pipeline.integrity import check_parts, check_shards
from evalcore.pipeline.kept_evidence import kept_evidence
from evalcore.pipeline.reuse_changes import target_changes
from evalcore.planning.expand import Expander
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.runs import StoredRun, find_run, list_runs, open_run
from evalcore.storage.seal import digest_of
from evalcore.storage.temporary_folder import temporary_folder

_RUNS_LOOKED_AT = 20


def earlier_runs(
    store: ObjectStore, suite: str, warn: Callable[[str], None]
) -> tuple[StoredRun, ...]:
    """Return those of the suite's last 20 completed runs that kept outputs, the newest first."""
    completed = (
        run
        for run in list_runs(store, suite)
        if run.state is State.COMPLETED and is_asked_by_own_checks(run)
    )
    latest = tuple(islice(completed, _RUNS_LOOKED_AT))
    with_outputs = [run for run in latest if kept_evidence(run) is not EvidencePolicy.NONE]
    if latest and not with_outputs:
        warn("nothing is reused: the earlier runs kept no outputs (evidence: none)")
    return tuple(open_run(store, suite, run.id) for run in with_outputs)


class PreparedReuse(NamedTuple):
    """The digests of the parts that were written, and how many items come from which runs.

    `settings` are added to those of the run.
    """

    parts: dict[str, str]
    settings: dict[str, Any]


def prepare_reuse(
    run: StoredRun, suite: Suite, plan: Plan, source: str, warn: Callable[[str], None]
) -> PreparedReuse:
    """Write, beside the plan, the stored rows that its items take over.

    `source` is `HISTORY`, or the id of the one run whose evidence is graded again. `warn` is told
    why evidence of earlier runs is not taken.
    """
    if source == HISTORY:
        runs: Sequence[StoredRun] = earlier_runs(run.store, suite.definition.name, warn)
    else:
        runs = (find_run(run.store, source),)
    with ExitStack() as stack, temporary_folder("evalcore-reuse-") as folder:
        digests: dict[str, str] = {}
        parts: list[Sequence[Path]] = []
        for earlier in runs:
            try:
                parts.append(stack.enter_context(_whole_parts(earlier)))
            except ResultsDroppedError:
                if source != HISTORY:
                    raise
                parts.append(())
            except DamagedRunError as error:
                if source != HISTORY:
                    raise
                parts.append(())
                warn(f"nothing is taken from an earlier run: {error}")
        if not any(parts):
            return PreparedReuse(digests, {})
        errors = source != HISTORY
        rows = stack.enter_context(ReusableRows(parts, errors=errors, items=plan.items))
        conversations = AskedConversations(None if source == HISTORY else runs[0])
        counts = rows.match(_planned_items(suite, plan, conversations))
        if source == HISTORY and counts.evidence < plan.items:
            amount = f"{plan.items - counts.evidence} of {plan.items} items"
            _tell_changes(suite, runs[0], amount, warn)
        names = [earlier.run_id for earlier in runs]
        sources = [
            {"run": name, "items": count}
            for name, count in zip(names, counts.by_run, strict=True)
            if count
        ]
        for number, first in enumerate(range(0, plan.items, REUSE_ITEMS)):
            path = folder / f"{number:05d}.parquet"
            rows.write_part(range(first, min(first + REUSE_ITEMS, plan.items)), path)
            key = run.keys.reuse_part(number)
            digests[key.removeprefix(run.keys.plan_prefix)] = digest_of(path.read_bytes())
            run.store.put_if_absent(key, path)
        settings = {"reused": sources, **conversations.settings} if sources else {}
        return PreparedReuse(digests, settings)


def _tell_changes(
    suite: Suite, newest: StoredRun, amount: str, warn: Callable[[str], None]
) -> None:
    for change in target_changes(suite.definition, newest):
        warn(f"not reused ({amount}): {change}")


@contextmanager
def _whole_parts(run: StoredRun) -> Iterator[Sequence[Path]]:
    """Give the result parts of a run; raise `DamagedRunError` unless they are its items' rows."""
    manifest = run.manifest()
    check_shards(run, manifest)
    with run.result_files(manifest.plan) as files:
        check_parts(run, manifest, files)
        yield files


def _planned_items(
    suite: Suite, plan: Plan, conversations: AskedConversations
) -> Iterator[PlannedItem]:
    """Yield the items by their identities, and by those that earlier versions gave them."""
    definition = suite.definition
    expanders = [Expander(definition)]
    if definition.file_rules >= METADATA_APART_SINCE:
        expanders.append(Expander(replace(definition, file_rules=METADATA_APART_SINCE - 1)))
    for index, case in enumerate(suite.cases):
        first = index * plan.items_per_case
        numbers = range(first, first + plan.items_per_case)
        asked_as = conversations.asked_as(case)
        for expander in expanders if case.metadata else expanders[:1]:
            for item in expander.expand(case, first, numbers, asked_as=asked_as):
                yield PlannedItem(item.number, item.exec_key, item.grade_key)
