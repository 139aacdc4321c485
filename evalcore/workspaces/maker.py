"""Makes workspaces: the folder, its template and its repositories, before the first hook."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from evalcore.errors import EvalError, StoreError, TargetError
from evalcore.model.workspace import WorkspaceSpec
from evalcore.trust.files import place_inside, repository_root, resolve_folder
from evalcore.trust.machine_faults import told_as_fault, waited_out
from evalcore.workspaces.file_changes import FileState, look
from evalcore.workspaces.process_folder import OTHER_FOLDER, ProcessFolder, remove_folder
from evalcore.workspaces.repositories import Checkout, Repositories
from evalcore.workspaces.template import WorkspaceTemplate


class NewWorkspace(NamedTuple):
    """A new workspace: its known files, whether those are all, its repositories."""

    path: Path
    files: dict[str, FileState]
    complete: bool
    checkouts: Mapping[str, Checkout]


class WorkspaceMaker:
    """Makes workspaces in the folder of one process; reads each template once."""

    def __init__(self, root: Path, run_id: str, suite_folder: Path) -> None:
        self.suite_folder = suite_folder
        self._root, self._run_id = root, run_id
        self._lock = threading.Lock()
        self._templates: dict[str, WorkspaceTemplate] = {}
        self._process_folder: ProcessFolder | None = None
        self._repositories: Repositories | None = None

    @property
    def process_folder(self) -> ProcessFolder:
        """This process's folder, made when the first workspace is."""
        with self._lock:
            if self._process_folder is None:
                self._process_folder = ProcessFolder(self._root, self._run_id)
            return self._process_folder

    async def make(self, spec: WorkspaceSpec, name: str) -> NewWorkspace:
        """Return a new workspace; raise `TargetError`, `StoreError` if there is no room for it."""
        try:
            path, files = await waited_out(lambda: asyncio.to_thread(self._copied, spec, name))
        except (TargetError, StoreError):
            raise
        except (EvalError, OSError) as error:
            raise TargetError("workspace", str(error)) from error
        checkouts = {}
        for repository in spec.repos:
            if spec.path is not None and (path / repository.path / ".git").exists():
                continue  # of an earlier run
            name = os.path.normpath(repository.path)
            checkouts[name] = await self._git().check_out(repository, path)
        if checkouts and spec.path is None:
            files = await asyncio.to_thread(look, path, files, is_checkout=True)
        return NewWorkspace(path, files, spec.path is None, checkouts)

    def _copied(self, spec: WorkspaceSpec, name: str) -> tuple[Path, dict[str, FileState]]:
        if spec.path is not None:
            path = place_inside(self.suite_folder, spec.path)
            path.mkdir(parents=True, exist_ok=True)
            return path, {}
        template = None if spec.template is None else self._template(spec.template)
        with told_as_fault(f"no workspace can be made below {self._root}", OTHER_FOLDER):
            folder = self.process_folder.new_folder(name)
            try:
                return folder, {} if template is None else template.copy_to(folder)
            except OSError:
                remove_folder(folder)
                raise

    def _template(self, name: str) -> WorkspaceTemplate:
        with self._lock:
            template = self._templates.get(name)
            if template is None:
                root = repository_root(self.suite_folder)
                folder = resolve_folder(root, self.suite_folder, name)
                template = self._templates[name] = WorkspaceTemplate(folder)
            return template

    def _git(self) -> Repositories:
        process_folder = self.process_folder
        with self._lock:
            if self._repositories is None:
                self._repositories = Repositories(process_folder.folder / "git", self.suite_folder)
            return self._repositories

    def leave(self, *, keep: bool) -> Path | None:
        """Remove the workspaces, or return the folder of those that are kept."""
        if self._process_folder is None:
            return None
        self._process_folder.leave(keep=keep)
        return self._process_folder.folder / "workspaces" if keep else None
