"""A workspace's folder and what stands in it before its first hook."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.model.workspace import WorkspaceSpec
from evalcore.trust.files import place_inside, repository_root, resolve_folder
from evalcore.workspaces.places import Place
from evalcore.workspaces.repositories import Checkout, Repositories
from evalcore.workspaces.seen import Seen
from evalcore.workspaces.template import Template


class Made(NamedTuple):
    """A new workspace: what is known of its files, whether those are all, its repositories."""

    path: Path
    seen: dict[str, Seen]
    complete: bool
    checkouts: Mapping[str, Checkout]


class Maker:
    """Makes workspaces in one process's place; reads each template once."""

    def __init__(self, root: Path, run_id: str, suite_folder: Path) -> None:
        self.suite_folder = suite_folder
        self._root, self._run_id = root, run_id
        self._lock = threading.Lock()
        self._templates: dict[str, Template] = {}
        self._place: Place | None = None
        self._repositories: Repositories | None = None

    @property
    def place(self) -> Place:
        """This process's folder, made when the first workspace is."""
        with self._lock:
            if self._place is None:
                self._place = Place(self._root, self._run_id)
            return self._place

    async def make(self, spec: WorkspaceSpec, name: str) -> Made:
        """Return a new workspace; raise `TargetError`."""
        try:
            path, seen = await asyncio.to_thread(self._copied, spec, name)
        except TargetError:
            raise
        except (EvalError, OSError) as error:
            raise TargetError("workspace", str(error)) from error
        checkouts = {}
        for repository in spec.repos:
            if spec.path is not None and (path / repository.path / ".git").exists():
                continue  # of an earlier run
            name = os.path.normpath(repository.path)
            checkouts[name] = await self._git().place(repository, path)
        return Made(path, seen, not spec.repos and spec.path is None, checkouts)

    def _copied(self, spec: WorkspaceSpec, name: str) -> tuple[Path, dict[str, Seen]]:
        if spec.path is not None:
            path = place_inside(self.suite_folder, spec.path)
            path.mkdir(parents=True, exist_ok=True)
            return path, {}
        template = None if spec.template is None else self._template(spec.template)
        folder = self.place.new_folder(name)
        return folder, {} if template is None else template.copy_to(folder)

    def _template(self, name: str) -> Template:
        with self._lock:
            found = self._templates.get(name)
            if found is None:
                root = repository_root(self.suite_folder)
                folder = resolve_folder(root, self.suite_folder, name)
                found = self._templates[name] = Template(folder)
            return found

    def _git(self) -> Repositories:
        place = self.place
        with self._lock:
            if self._repositories is None:
                self._repositories = Repositories(place.folder / "git", self.suite_folder)
            return self._repositories

    def leave(self, *, keep: bool) -> Path | None:
        """Remove what was made, unless it is to be kept; return where the kept ones stand."""
        if self._place is None:
            return None
        self._place.leave(keep=keep)
        return self._place.folder / "workspaces" if keep else None
