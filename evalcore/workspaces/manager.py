"""The workspaces of one run in one process (docs/decisions/0026-workspaces.md)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.workspace import EACH, HookName, spec_of
from evalcore.trust.imports import NO_COMMANDS
from evalcore.workspaces.home import Home
from evalcore.workspaces.hooks import Told
from evalcore.workspaces.locking import locked
from evalcore.workspaces.making import Maker

_MOST_WARNINGS: Final = 20


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What workspaces are made in.

    `root` is the folder of all of them on this machine, `keep` leaves them there. `warn` is told
    of `after` hooks that fail. `clean` takes secrets out of texts and JSON values. `commands` says
    whether programs (hooks, git) may be started.
    """

    root: Path
    keep: bool = False
    commands: bool = True
    warn: Callable[[str], None] = lambda _: None
    clean: Callable[[Any], Any] = _unchanged


@dataclass(slots=True)
class Workspace:
    """A workspace as one test sees it; `notes` become a part of its evidence."""

    path: Path
    home: Home
    surroundings: Surroundings
    notes: dict[str, Any] = field(default_factory=dict)

    async def note_changes(self) -> None:
        """Note what the target has changed."""
        found = await self.home.changes()
        if found:
            self.notes["file_changes"] = self.surroundings.clean(found)

    def told_by(self, evidence: Evidence | None) -> Evidence:
        """Return evidence that says what the notes say."""
        found = evidence or Evidence(None)
        return found._replace(details={**found.details, **self.notes}) if self.notes else found


class Workspaces:
    """Gives tests their workspaces; safe in several threads."""

    def __init__(self, run_id: str, suite_folder: Path, surroundings: Surroundings) -> None:
        self._run_id = run_id
        self._surroundings = surroundings
        self._maker = Maker(surroundings.root, run_id, suite_folder)
        self._lock = threading.Lock()
        self._shared: dict[bytes, Home] = {}
        self._warned = 0

    @asynccontextmanager
    async def entered(self, case: Case, label: str) -> AsyncIterator[Workspace]:
        """Give a case its workspace, prepared; `label` names its folder if it is its own.

        Those that share one take turns. Raises `TargetError` if it cannot be prepared.
        """
        if not self._surroundings.commands:
            raise TargetError("workspace", f"a workspace: {NO_COMMANDS}")
        raw = case.workspace or {}
        told = Told("", self._run_id, case.id, case.input, case.metadata)
        if spec_of(raw).shared:
            home = self._shared_home(raw)
            async with home.turns, self._outside(home):
                # The hooks around a test are its own.
                home.spec = spec_of(raw)
                async with self._test(home, told) as workspace:
                    yield workspace
            return
        home = Home(spec_of(raw), self._maker, label, told)
        try:
            async with self._test(home, told) as workspace:
                yield workspace
        finally:
            await self._end(home)

    @asynccontextmanager
    async def _test(self, home: Home, told: Told) -> AsyncIterator[Workspace]:
        """Prepare a workspace for one test, and clean up after it."""
        try:
            path = await home.prepare()
        except TargetError as error:
            raise self._cleaned(error) from error
        workspace = Workspace(path, home, self._surroundings)
        if self._surroundings.keep or home.spec.path is not None:
            workspace.notes["workspace"] = str(path)
        try:
            try:
                await home.before_each(told)
            except TargetError as error:
                raise self._cleaned(error) from error
            yield workspace
        finally:
            try:
                await home.after_each(told)
            except TargetError as error:
                message = self._cleaned(error).message
                workspace.notes.setdefault("warnings", []).append(message)
                self._warn(f"test '{told.test_id}': {message}")

    def _shared_home(self, raw: Mapping[str, Any]) -> Home:
        """Return the workspace that all tests share whose workspaces differ by `each` hooks only.

        A folder that is used as it is has one for all, whoever names it.
        """
        hooks = {name: hook for name, hook in raw.get("hooks", {}).items() if name not in EACH}
        key = orjson.dumps({**raw, "hooks": hooks}, option=orjson.OPT_SORT_KEYS)
        with self._lock:
            home = self._shared.get(key)
            if home is None:
                name = "shared" if not self._shared else f"shared-{len(self._shared)}"
                home = Home(spec_of(raw), self._maker, name, Told("", self._run_id))
                self._shared[key] = home
                same = next((one for one in self._shared.values() if _is_same(one, home)), home)
                home.turns = same.turns
            return home

    def _outside(self, home: Home) -> AbstractAsyncContextManager[None]:
        """Keep other processes out of a folder that is used as it is."""
        if home.spec.path is None:
            return nullcontext()
        folder = self._maker.suite_folder / home.spec.path
        return locked(self._surroundings.root, folder.resolve())

    async def _end(self, home: Home) -> None:
        try:
            await home.after_all()
        except TargetError as error:
            self._warn(self._cleaned(error).message)
        finally:
            if not self._surroundings.keep:
                await home.remove()

    def _cleaned(self, error: TargetError) -> TargetError:
        return TargetError(error.kind, self._surroundings.clean(error.message))

    def _warn(self, message: str) -> None:
        with self._lock:
            self._warned += 1
            if self._warned > _MOST_WARNINGS:
                return
        self._surroundings.warn(f"workspace: {message}")

    def close(self) -> Path | None:
        """Run `after_all` where tests shared a workspace, and remove all; no test is in one.

        Returns the folder of the kept ones, if there is any.
        """
        homes, self._shared = list(self._shared.values()), {}
        if homes:
            # The caller may be in an event loop of its own.
            thread = threading.Thread(target=lambda: asyncio.run(self._end_all(homes)))
            thread.start()
            thread.join()
        return self._maker.leave(keep=self._surroundings.keep)

    async def _end_all(self, homes: list[Home]) -> None:
        for home in homes:
            async with self._outside(home):
                await self._end(home)


def _is_same(one: Home, other: Home) -> bool:
    """Whether two name the same folder that is used as it is."""
    return other.spec.path is not None and one.spec.path == other.spec.path


__all__ = ["HookName", "Surroundings", "Workspace", "Workspaces"]
