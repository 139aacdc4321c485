"""The folder of a workspace, from its first file to its removal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalcore.errors import TargetError
from evalcore.model.workspace import BEFORE, Hook, HookName, WorkspaceSpec
from evalcore.workspaces.fair_lock import FairLock
from evalcore.workspaces.file_changes import FileState, changes, look
from evalcore.workspaces.hooks import HookInput, run_hook
from evalcore.workspaces.maker import WorkspaceMaker
from evalcore.workspaces.process_folder import remove_folder
from evalcore.workspaces.repositories import Checkout, content_at
from evalcore.workspaces.reset_copy import ResetCopy


class WorkspaceFolder:
    """A workspace that is made when it is first needed and prepared by `before_all` once.

    `lock` lets one test at a time into it.
    """

    def __init__(
        self, spec: WorkspaceSpec, maker: WorkspaceMaker, name: str, hook_input: HookInput
    ) -> None:
        """`hook_input` is the input of the `all` hooks, without the path."""
        self.spec = spec
        self.lock = FairLock()
        self.path: Path | None = None
        self._maker = maker
        self._name = name
        self._hook_input = hook_input
        self._files_before: dict[str, FileState] = {}
        self._files_complete = False
        self._checkouts: Mapping[str, Checkout] = {}
        self._reset_copy: ResetCopy | None = None
        self._failure: TargetError | None = None
        self._hooks_started = False

    async def prepare(self) -> Path:
        """Return the folder, made and prepared; raise `TargetError`, each time, if that failed."""
        if self._failure is not None:
            raise self._failure
        if self.path is not None:
            return self.path
        try:
            new_workspace = await self._maker.make(self.spec, self._name)
            self.path, self._files_before, self._files_complete, self._checkouts = new_workspace
            await self._run(HookName.BEFORE_ALL, self._hook_input)
            if self.spec.resets:
                self._reset_copy = await asyncio.to_thread(self._copied, self.path)
        except TargetError as error:
            self._failure = error
            raise
        except asyncio.CancelledError:
            await self.remove()
            raise
        return self.path

    async def before_each(self, hook_input: HookInput) -> None:
        """Run the hook for a test, then record the files of the workspace."""
        await self._run(HookName.BEFORE_EACH, hook_input)
        if not self._files_complete and self.path is not None:
            self._files_before = await asyncio.to_thread(look, self.path, self._files_before)
            self._files_complete = True

    async def after_each(self, hook_input: HookInput) -> None:
        """Run the hook for a test; the next test begins with the files that it leaves."""
        self._files_complete = False
        await self._run(HookName.AFTER_EACH, hook_input)

    async def after_all(self) -> None:
        """Run the last hook if the first one was started."""
        if self._hooks_started:
            self._hooks_started = False
            await self._run(HookName.AFTER_ALL, self._hook_input)

    async def changes(self) -> Sequence[Any]:
        """Return the changes of files since `before_each` (workspaces.file_changes)."""
        if self.path is None:
            return ()
        return await asyncio.to_thread(changes, self.path, self._files_before, self._earlier)

    async def remove(self) -> None:
        """Remove the folder, unless the suite names it (`path`)."""
        path, self.path = self.path, None
        if self._reset_copy is not None:
            await asyncio.to_thread(self._reset_copy.remove)
        if path is not None and self.spec.path is None:
            await asyncio.to_thread(remove_folder, path)

    def _copied(self, path: Path) -> ResetCopy:
        """Return a copy of the workspace, beside those of the others."""
        return ResetCopy(path, self._maker.process_folder.folder / "snapshots" / path.name)

    def _earlier(self, name: str) -> bytes | None:
        """Return the content of a repository's file in the commit that was checked out."""
        for folder, checkout in self._checkouts.items():
            prefix = "" if folder == "." else f"{folder}/"
            if name.startswith(prefix):
                content = content_at(checkout, name.removeprefix(prefix))
                if content is not None:
                    return content
        return None

    async def _run(self, name: HookName, hook_input: HookInput) -> None:
        """Run the workspace's hook and the target's; of `after` hooks each runs in any case."""
        self._hooks_started = self._hooks_started or name is HookName.BEFORE_ALL
        hook, of_target = self.spec.hooks.get(name), self.spec.target_hooks.get(name)
        if name in BEFORE:
            await self._run_hook(name, hook, hook_input)
            await self._run_hook(f"{name} of the target", of_target, hook_input)
            return
        try:
            await self._run_hook(f"{name} of the target", of_target, hook_input)
        finally:
            await self._run_hook(name, hook, hook_input)

    async def _run_hook(self, name: str, hook: Hook | None, hook_input: HookInput) -> None:
        if hook is None:
            return
        self._files_complete = False
        if hook.reset and self._reset_copy is not None:
            await asyncio.to_thread(self._reset_copy.restore)
        hook_input = hook_input._replace(workspace_path=str(self.path))
        await run_hook(name, hook, hook_input, self._maker.suite_folder)
