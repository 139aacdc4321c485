"""How the commands that run suites execute and show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalcore.cli.options import settings
from evalcore.cli.progress import ProgressDisplay
from evalcore.cli.showing import one_line
from evalcore.execution.stopper import Stopper
from evalcore.isolation.mode import Isolation
from evalcore.model.mode import Mode
from evalcore.pipeline.plan import PlanOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.pipeline.finish import RunView


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How runs are executed and shown. `observe` is called with each run that has ended.

    `runner` is Prefect's, which asks for plans for `planned_workers` processes.
    """

    as_json: bool
    verbose: bool
    prefect: bool = False
    runner: str = "auto"
    planned_workers: int = 1
    workers: int | None = None
    forms: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    mode: str = Mode.LIVE
    reuse: str | None = None
    keep_workspaces: bool = False
    exports: tuple[Path, ...] = ()
    detail: bool = False
    isolation: str | None = None
    observe: Callable[[RunView], None] | None = None

    def policy(self, roots: tuple[Path, ...]) -> ImportPolicy:
        """Return what may be imported: below the roots, and what the caller and settings allow."""
        return ImportPolicy(roots=roots, allowed=(*settings().allow_imports, *self.imports))

    def execute(
        self,
        policy: ImportPolicy,
        stopper: Stopper,
        progress: ProgressDisplay,
        workers: int = 1,
    ) -> ExecuteOptions:
        """Return how the run is executed, with warnings on standard error."""
        configured = settings()
        return ExecuteOptions(
            imports=policy,
            settings=configured,
            progress=progress,
            stopper=stopper,
            warn=tell_warning,
            keep_workspaces=self.keep_workspaces,
            isolation=Isolation(self.isolation or configured.isolation),
            workers=workers,
            waits=progress.waits,
        )

    @property
    def plan(self) -> PlanOptions:
        """How plans are cut: through an orchestrator a small run shows each case."""
        options = PlanOptions(
            mode=self.mode,
            reuse=self.reuse,
            workers=self.workers or 1,
            isolation=self.isolation,
            warn=tell_warning,
        )
        if self.prefect:
            return replace(options, workers=self.planned_workers, single_items=True)
        return options


def tell_warning(message: str) -> None:
    """Print a warning, which decides nothing, to standard error."""
    click.echo(f"Warning: {one_line(message)}", err=True)
