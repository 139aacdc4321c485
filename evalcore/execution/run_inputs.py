"""What a run gives to the items of a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evalcore.checks.subject import no_labels
from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import Mode
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.annotations.labels import LabelRecord
    from evalcore.execution.limits import PreventedItem
    from evalcore.execution.reused_items import ReusedItems
    from evalcore.planning.expand import WorkItem
    from evalcore.workflow.run_store import RunStore
    from evalcore.workspaces.manager import Workspaces


class RunInputs(NamedTuple):
    """What a run gives to its items beside its suite.

    `folder` is the suite's, `imports` says what may be imported and started. `objects` are what a
    suite made in Python refers to by name. `ended` says that the run's time is over, `decided` that
    its gates do not need an item: items that have not begun then are skipped. `run_stores` says
    where the events of an item's workflow go, `reused` which items have evidence of an earlier run,
    `calibrated` which judges may decide (None: all), `workspaces` what tests work in, `workers`
    which processes run the suite's Python. `begins` is called with each item that is executed and
    has to wait. `prevented` has, by execution key, the items that a limit cut short in the run that
    is replayed. `labels_of` returns what people said of a content.
    """

    folder: Path
    imports: ImportPolicy
    mode: str = Mode.LIVE
    objects: Mapping[str, Any] = NOTHING
    ended: Callable[[], bool] | None = None
    decided: Callable[[WorkItem], bool] | None = None
    run_stores: Callable[[int], RunStore] | None = None
    reused: ReusedItems | None = None
    calibrated: Callable[[str], bool] | None = None
    workspaces: Callable[[], Workspaces] | None = None
    workers: Workers = NO_WORKERS
    begins: Callable[[int], None] | None = None
    prevented: Mapping[str, PreventedItem] = NOTHING
    labels_of: Callable[[str], Sequence[LabelRecord]] = no_labels
