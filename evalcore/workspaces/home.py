"""One workspace from its first file to its removal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalcore.errors import TargetError
from evalcore.model.workspace import HookName, WorkspaceSpec
from evalcore.workspaces.hooks import Told, run_hook
from evalcore.workspaces.making import Maker
from evalcore.workspaces.places import remove_folder
from evalcore.workspaces.repositories import Checkout, content_at
from evalcore.workspaces.seen import Seen, changes, look
from evalcore.workspaces.turns import Turns


class Home:
    """A workspace: made when it is first needed, prepared by `before_all` once.

    `turns` lets one test at a time into it.
    """

    def __init__(self, spec: WorkspaceSpec, maker: Maker, name: str, told: Told) -> None:
        """Take what it is made of; `told` is what the `all` hooks are told, but for the path."""
        self.spec = spec
        self.turns = Turns()
        self.path: Path | None = None
        self._maker = maker
        self._name = name
        self._told = told
        self._seen: dict[str, Seen] = {}
        self._seen_all = False
        self._checkouts: Mapping[str, Checkout] = {}
        self._failure: TargetError | None = None
        self._begun = False

    async def prepare(self) -> Path:
        """Return the folder, made and prepared; raise `TargetError`, each time, if that failed."""
        if self._failure is not None:
            raise self._failure
        if self.path is not None:
            return self.path
        try:
            made = await self._maker.make(self.spec, self._name)
            self.path, self._seen, self._seen_all, self._checkouts = made
            await self._run(HookName.BEFORE_ALL, self._told)
        except TargetError as error:
            self._failure = error
            raise
        except asyncio.CancelledError:
            await self.remove()
            raise
        return self.path

    async def before_each(self, told: Told) -> None:
        """Run the hook for a test, and look at what the workspace holds then."""
        await self._run(HookName.BEFORE_EACH, told)
        if not self._seen_all and self.path is not None:
            self._seen = await asyncio.to_thread(look, self.path, self._seen)
            self._seen_all = True

    async def after_each(self, told: Told) -> None:
        """Run the hook for a test; what it left is what the next one begins with."""
        self._seen_all = False
        await self._run(HookName.AFTER_EACH, told)

    async def after_all(self) -> None:
        """Run the last hook if the first one was begun."""
        if self._begun:
            self._begun = False
            await self._run(HookName.AFTER_ALL, self._told)

    async def changes(self) -> Sequence[Any]:
        """Return what became of the files since `before_each` (workspaces.seen)."""
        if self.path is None:
            return ()
        return await asyncio.to_thread(changes, self.path, self._seen, self._earlier)

    async def remove(self) -> None:
        """Remove the folder, unless it is somebody's own."""
        path, self.path = self.path, None
        if path is not None and self.spec.path is None:
            await asyncio.to_thread(remove_folder, path)

    def _earlier(self, name: str) -> bytes | None:
        """Return what a file of a repository was in the commit that was checked out."""
        for place, checkout in self._checkouts.items():
            prefix = "" if place == "." else f"{place}/"
            if name.startswith(prefix):
                found = content_at(checkout, name.removeprefix(prefix))
                if found is not None:
                    return found
        return None

    async def _run(self, name: HookName, told: Told) -> None:
        hook = self.spec.hooks.get(name)
        self._begun = self._begun or name is HookName.BEFORE_ALL
        if hook is None:
            return
        self._seen_all = False
        told = told._replace(workspace_path=str(self.path))
        await run_hook(name, hook, told, self._maker.suite_folder)
