"""Runs enter the tables: their rows are staged as Parquet, and committed some runs at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalcore.errors import DamagedRunError, EvalError, ObjectNotFoundError
from evalcore.history.columns import ASSERTIONS, CASES, GATES, RUNS
from evalcore.history.commits import commit_runs
from evalcore.history.data_files import open_writer
from evalcore.history.known_runs import EndedRun
from evalcore.history.run_rows import RunRows, manifest_version, write_run_rows
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import temporary_folder

# What is committed together: a commit takes as long as the rows of some runs.
_BATCH_RUNS: Final = 100
_BATCH_ITEMS: Final = 200_000
# A run is known when it is in `runs`: that table comes last.
COMMIT_ORDER: Final = (ASSERTIONS, CASES, GATES, RUNS)
_STAGERS: Final = 4

Progress = Callable[[int, int], None]
"""Called with how many runs are done, and how many there are."""
Step = Callable[[str], None]
"""Called with the name of each step just after it."""


def ignore(*_: object) -> None:
    """Take what is told of progress or steps, and do nothing."""


@dataclass(frozen=True)
class Entrance:
    """How runs enter the tables of a store; `anew` replaces rows that are there already."""

    store: ObjectStore
    progress: Progress = ignore
    step: Step = ignore
    anew: bool = False

    def enter(self, ended: Sequence[EndedRun], damaged: dict[str, str]) -> list[str]:
        """Write the rows of runs in batches; return the runs that entered.

        The reasons of those whose rows do not add up are added to `damaged`. A run that goes on
        meanwhile is left out.
        """
        entered: list[str] = []
        done = 0
        for batch in _batches(ended):
            with temporary_folder("evalcore-history-") as folder:
                staged = []
                for rows in _stage_all(batch, folder, damaged):
                    if rows is not None:
                        staged.append(rows)
                    done += 1
                    self.progress(done, len(ended))
                self.step("staged")
                if staged:
                    self._commit(staged)
            entered += [rows.run_id for rows in staged]
        return entered

    def _commit(self, staged: Sequence[RunRows]) -> None:
        with open_writer() as writer:
            for table in COMMIT_ORDER:
                runs = {rows.run_id: rows.tables[table.name] for rows in staged}
                commit_runs(self.store, table, runs, writer, anew=self.anew)
                self.step(f"committed {table.name}")


def _batches(ended: Sequence[EndedRun]) -> Iterator[list[EndedRun]]:
    batch: list[EndedRun] = []
    items = 0
    for each in ended:
        size = each.manifest.plan.items
        if batch and (len(batch) >= _BATCH_RUNS or items + size > _BATCH_ITEMS):
            yield batch
            batch, items = [], 0
        batch.append(each)
        items += size
    if batch:
        yield batch


def _stage_all(
    batch: Sequence[EndedRun], folder: Path, damaged: dict[str, str]
) -> Iterator[RunRows | None]:
    """Yield the rows of each run of a batch, in its order; a few are made at the same time."""

    def stage(number: int) -> RunRows | None:
        run_folder = folder / str(number)
        run_folder.mkdir()
        return _staged(batch[number], run_folder, damaged)

    if len(batch) == 1:
        yield stage(0)
        return
    with ThreadPoolExecutor(min(_STAGERS, os.cpu_count() or 1)) as stagers:
        yield from stagers.map(stage, range(len(batch)))


def _staged(each: EndedRun, folder: Path, damaged: dict[str, str]) -> RunRows | None:
    """Return a run's rows; None if it is damaged, deleted, or goes on at the moment."""
    try:
        rows = write_run_rows(each.run, each.manifest, folder)
        return rows if manifest_version(each.run.manifest()) == rows.version else None
    except ObjectNotFoundError:
        return None
    except DamagedRunError as error:
        if not _has_changed(each):
            damaged[each.run.run_id] = "; ".join(map(str, error.damages[:3]))
        return None


def _has_changed(each: EndedRun) -> bool:
    """Whether the run is not any more what was read of it."""
    with suppress(EvalError):
        return each.run.manifest() != each.manifest
    return False
