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
from evalcore.workspaces.hooks import HookInput
from evalcore.workspaces.locking import locked
from evalcore.workspaces.maker import WorkspaceMaker
from evalcore.workspaces.workspace_folder import WorkspaceFolder

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
    workspace_folder: WorkspaceFolder
    surroundings: Surroundings
    notes: dict[str, Any] = field(default_factory=dict)

    async def note_changes(self) -> None:
        """Note what the target has changed."""
        changes = await self.workspace_folder.changes()
        if changes:
            self.notes["file_changes"] = self.surroundings.clean(changes)

    def told_by(self, evidence: Evidence | None) -> Evidence:
        """Return the evidence with the notes in its details."""
        described = evidence or Evidence(None)
        return (
            described._replace(details={**described.details, **self.notes})
            if self.notes
            else described
        )


class Workspaces:
    """Gives tests their workspaces; safe in several threads.

    `single` says that the suite has one test: its shared workspace is that test's.
    """

    def __init__(
        self, run_id: str, suite_folder: Path, surroundings: Surroundings, *, single: bool = False
    ) -> None:
        self._run_id = run_id
        self._single = single
        self._surroundings = surroundings
        self._maker = WorkspaceMaker(surroundings.root, run_id, suite_folder)
        self._lock = threading.Lock()
        self._shared: dict[bytes, WorkspaceFolder] = {}
        self._warned = 0

    @asynccontextmanager
    async def entered(self, case: Case, label: str) -> AsyncIterator[Workspace]:
        """Give a case its workspace, prepared; `label` names its folder if it is its own.

        Those that share one take turns. Raises `TargetError` if it cannot be prepared.
        """
        if not self._surroundings.commands:
            raise TargetError("workspace", f"a workspace: {NO_COMMANDS}")
        raw = case.workspace or {}
        hook_input = HookInput("", self._run_id, case.id, case.input, case.metadata)
        if spec_of(raw).shared:
            workspace_folder = self._shared_home(raw, hook_input)
            async with workspace_folder.lock, self._locked_against_processes(workspace_folder):
                # The hooks around a test are its own.
                workspace_folder.spec = spec_of(raw)
                async with self._test(workspace_folder, hook_input) as workspace:
                    yield workspace
            return
        workspace_folder = WorkspaceFolder(spec_of(raw), self._maker, label, hook_input)
        try:
            async with self._test(workspace_folder, hook_input) as workspace:
                yield workspace
        finally:
            await self._end(workspace_folder)

    @asynccontextmanager
    async def _test(
        self, workspace_folder: WorkspaceFolder, hook_input: HookInput
    ) -> AsyncIterator[Workspace]:
        """Prepare a workspace for one test, and clean up after it."""
        try:
            path = await workspace_folder.prepare()
        except TargetError as error:
            raise self._cleaned(error) from error
        workspace = Workspace(path, workspace_folder, self._surroundings)
        if self._surroundings.keep or workspace_folder.spec.path is not None:
            workspace.notes["workspace"] = str(path)
        try:
            try:
                await workspace_folder.before_each(hook_input)
            except TargetError as error:
                raise self._cleaned(error) from error
            yield workspace
        finally:
            try:
                await workspace_folder.after_each(hook_input)
            except TargetError as error:
                message = self._cleaned(error).message
                workspace.notes.setdefault("warnings", []).append(message)
                self._warn(f"test '{hook_input.test_id}': {message}")

    def _shared_home(self, raw: Mapping[str, Any], hook_input: HookInput) -> WorkspaceFolder:
        """Return the workspace that all tests share whose workspaces differ by `each` hooks only.

        Those whose `each` hooks reset it share another one.

        A folder that is used as it is (`path`) has one for all tests.
        """
        # Only a workspace that is reset has a copy of its beginning.
        hooks = {
            name: {"reset": True} if name in EACH else hook
            for name, hook in raw.get("hooks", {}).items()
            if name not in EACH or hook.get("reset")
        }
        key = orjson.dumps({**raw, "hooks": hooks}, option=orjson.OPT_SORT_KEYS)
        with self._lock:
            workspace_folder = self._shared.get(key)
            if workspace_folder is None:
                name = "shared" if not self._shared else f"shared-{len(self._shared)}"
                for_all = hook_input if self._single else HookInput("", self._run_id)
                workspace_folder = WorkspaceFolder(spec_of(raw), self._maker, name, for_all)
                self._shared[key] = workspace_folder
                same = next(
                    (
                        shared
                        for shared in self._shared.values()
                        if _is_same(shared, workspace_folder)
                    ),
                    workspace_folder,
                )
                workspace_folder.lock = same.lock
            return workspace_folder

    def _locked_against_processes(
        self, workspace_folder: WorkspaceFolder
    ) -> AbstractAsyncContextManager[None]:
        """Keep other processes out of a folder that is used as it is."""
        if workspace_folder.spec.path is None:
            return nullcontext()
        folder = self._maker.suite_folder / workspace_folder.spec.path
        return locked(self._surroundings.root, folder.resolve())

    async def _end(self, workspace_folder: WorkspaceFolder) -> None:
        try:
            await workspace_folder.after_all()
        except TargetError as error:
            self._warn(self._cleaned(error).message)
        finally:
            if not self._surroundings.keep:
                await workspace_folder.remove()

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
        workspace_folders, self._shared = list(self._shared.values()), {}
        if workspace_folders:
            # The caller may be in an event loop of its own.
            thread = threading.Thread(target=lambda: asyncio.run(self._end_all(workspace_folders)))
            thread.start()
            thread.join()
        return self._maker.leave(keep=self._surroundings.keep)

    async def _end_all(self, workspace_folders: list[WorkspaceFolder]) -> None:
        for workspace_folder in workspace_folders:
            async with self._locked_against_processes(workspace_folder):
                await self._end(workspace_folder)


def _is_same(first: WorkspaceFolder, second: WorkspaceFolder) -> bool:
    """Whether two name the same folder that is used as it is."""
    return second.spec.path is not None and first.spec.path == second.spec.path


__all__ = ["HookName", "Surroundings", "Workspace", "Workspaces"]
