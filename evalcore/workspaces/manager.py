"""The workspaces of one run in one process (docs/decisions/0026-workspaces.md)."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import EvalError, StoreError, TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.suite import EACH, Case, HookName, WorkspaceSpec, spec_of
from evalcore.trust.files import place_inside, repository_root, resolve_folder
from evalcore.trust.imports import NO_COMMANDS
from evalcore.trust.machine_faults import told_as_fault, waited_out
from evalcore.workspaces.folders import (
    OTHER_FOLDER,
    Folder,
    ProcessFolder,
    changes,
    copy_folder,
    look,
    remove_folder,
)
from evalcore.workspaces.hooks import HookInput, run_hook
from evalcore.workspaces.repositories import Repositories

_MOST_WARNINGS: Final = 20


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
    clean: Callable[[Any], Any] = lambda value: value


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
        return described._replace(details={**described.details, **self.notes})


class Workspaces:
    """Gives tests their workspaces; the tests run in one event loop.

    `single` says that the suite has one test: its shared workspace is that test's.
    """

    def __init__(
        self, run_id: str, suite_folder: Path, surroundings: Surroundings, *, single: bool = False
    ) -> None:
        self.suite_folder = suite_folder
        self._run_id = run_id
        self._single = single
        self._surroundings = surroundings
        self._lock = threading.Lock()
        self._process_folder: ProcessFolder | None = None
        self._templates: dict[str, Path] = {}
        self._repositories: Repositories | None = None
        self._shared: dict[bytes, WorkspaceFolder] = {}
        self._turns: dict[str, asyncio.Lock] = {}
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
            workspace_folder = self._shared_folder(raw, hook_input)
            async with workspace_folder.turn, self._locked(workspace_folder):
                # The hooks around a test are its own.
                workspace_folder.spec = spec_of(raw)
                async with self._test(workspace_folder, hook_input) as workspace:
                    yield workspace
            return
        workspace_folder = WorkspaceFolder(spec_of(raw), self, label, hook_input)
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
        with self._cleaned():
            path = await workspace_folder.prepare()
        workspace = Workspace(path, workspace_folder, self._surroundings)
        if self._surroundings.keep or workspace_folder.spec.path is not None:
            workspace.notes["workspace"] = str(path)
        try:
            with self._cleaned():
                await workspace_folder.before_each(hook_input)
            yield workspace
        finally:
            try:
                with self._cleaned():
                    await workspace_folder.after_each(hook_input)
            except TargetError as error:
                workspace.notes.setdefault("warnings", []).append(error.message)
                self._warn(f"test '{hook_input.test_id}': {error.message}")

    def _shared_folder(self, raw: Mapping[str, Any], hook_input: HookInput) -> WorkspaceFolder:
        """Return the workspace that all tests share whose workspaces differ by `each` hooks only.

        Tests in the same folder that is used as it is (`path`) take turns.
        """
        hooks = {name: hook for name, hook in raw.get("hooks", {}).items() if name not in EACH}
        key = orjson.dumps({**raw, "hooks": hooks}, option=orjson.OPT_SORT_KEYS)
        workspace_folder = self._shared.get(key)
        if workspace_folder is None:
            name = f"shared-{len(self._shared)}" if self._shared else "shared"
            for_all = hook_input if self._single else HookInput("", self._run_id)
            workspace_folder = WorkspaceFolder(spec_of(raw), self, name, for_all)
            turn = self._turns.setdefault(raw.get("path") or name, workspace_folder.turn)
            workspace_folder.turn = turn
            self._shared[key] = workspace_folder
        return workspace_folder

    @asynccontextmanager
    async def _locked(self, workspace_folder: WorkspaceFolder) -> AsyncIterator[None]:
        """Keep other processes out of a folder that is used as it is."""
        if workspace_folder.spec.path is None:
            yield
            return
        from filelock import AsyncFileLock

        root = self._surroundings.root
        folder = (self.suite_folder / workspace_folder.spec.path).resolve()
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        # Not in a thread: an attempt takes no time, and between two the event loop goes on.
        lock = AsyncFileLock(root / f"{name}.lock", run_in_executor=False, fallback_to_soft=False)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            await lock.acquire()
        except OSError as error:
            raise TargetError("workspace", f"{folder} cannot be locked: {error}") from error
        try:
            yield
        finally:
            await lock.release()

    @property
    def process_folder(self) -> ProcessFolder:
        """This process's folder, made when the first workspace is."""
        with self._lock:
            if self._process_folder is None:
                self._process_folder = ProcessFolder(self._surroundings.root, self._run_id)
            return self._process_folder

    async def make(self, spec: WorkspaceSpec, name: str) -> Path:
        """Return the folder of a new workspace.

        Raises `TargetError`; `StoreError` if there is no room for it.
        """
        try:
            path = await waited_out(lambda: asyncio.to_thread(self._copied, spec, name))
        except (TargetError, StoreError):
            raise
        except (EvalError, OSError) as error:
            raise TargetError("workspace", str(error)) from error
        for repository in spec.repos:
            if spec.path is not None and (path / repository.path / ".git").exists():
                continue  # of an earlier run
            if self._repositories is None:
                git = self.process_folder.folder / "git"
                self._repositories = Repositories(git, self.suite_folder)
            await self._repositories.check_out(repository, path)
        return path

    def _copied(self, spec: WorkspaceSpec, name: str) -> Path:
        if spec.path is not None:
            path = place_inside(self.suite_folder, spec.path)
            path.mkdir(parents=True, exist_ok=True)
            return path
        subject = f"no workspace can be made below {self._surroundings.root}"
        with told_as_fault(subject, OTHER_FOLDER):
            folder = self.process_folder.new_folder(name)
            try:
                if spec.template is not None:
                    copy_folder(self._template(spec.template), folder)
            except (EvalError, OSError):
                remove_folder(folder)
                raise
            return folder

    def _template(self, name: str) -> Path:
        """Return a copy of a template: what changes in it later, changes no test."""
        process_folder = self.process_folder
        with self._lock:
            if name not in self._templates:
                root = repository_root(self.suite_folder)
                template = resolve_folder(root, self.suite_folder, name)
                copy = process_folder.folder / "snapshots" / f"template-{len(self._templates)}"
                remove_folder(copy)
                copy_folder(template, copy)
                self._templates[name] = copy
            return self._templates[name]

    async def _end(self, workspace_folder: WorkspaceFolder) -> None:
        try:
            with self._cleaned():
                await workspace_folder.after_all()
        except TargetError as error:
            self._warn(error.message)
        finally:
            if not self._surroundings.keep:
                await workspace_folder.remove()

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Take secrets out of what is raised."""
        try:
            yield
        except TargetError as error:
            raise TargetError(error.kind, self._surroundings.clean(error.message)) from error

    def _warn(self, message: str) -> None:
        self._warned += 1
        if self._warned <= _MOST_WARNINGS:
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
        if self._process_folder is None:
            return None
        keep = self._surroundings.keep
        self._process_folder.leave(keep=keep)
        return self._process_folder.folder / "workspaces" if keep else None

    async def _end_all(self, workspace_folders: list[WorkspaceFolder]) -> None:
        for workspace_folder in workspace_folders:
            async with self._locked(workspace_folder):
                await self._end(workspace_folder)


@dataclass(slots=True)
class WorkspaceFolder:
    """A workspace that is made when it is first needed and prepared by `before_all` once.

    `all_input` is the input of the `all` hooks, without the path; `turn` lets one test at a time
    into it.
    """

    spec: WorkspaceSpec
    workspaces: Workspaces
    name: str
    all_input: HookInput
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    path: Path | None = None
    _files_before: Folder = field(default_factory=dict)
    _failure: TargetError | None = None
    _hooks_started: bool = False

    async def prepare(self) -> Path:
        """Return the folder, made and prepared; raise `TargetError`, each time, if that failed."""
        if self._failure is not None:
            raise self._failure
        if self.path is not None:
            return self.path
        try:
            self.path = await self.workspaces.make(self.spec, self.name)
            await self._run(HookName.BEFORE_ALL, self.all_input)
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
        if self.path is not None:
            self._files_before = await asyncio.to_thread(look, self.path)

    async def after_each(self, hook_input: HookInput) -> None:
        """Run the hook for a test; the next test begins with the files that it leaves."""
        await self._run(HookName.AFTER_EACH, hook_input)

    async def after_all(self) -> None:
        """Run the last hook if the first one was started."""
        if self._hooks_started:
            self._hooks_started = False
            await self._run(HookName.AFTER_ALL, self.all_input)

    async def changes(self) -> Sequence[Any]:
        """Return the changes of files since `before_each` (workspaces.folders)."""
        if self.path is None:
            return ()
        return await asyncio.to_thread(changes, self.path, self._files_before)

    async def remove(self) -> None:
        """Remove the folder, unless the suite names it (`path`)."""
        path, self.path = self.path, None
        if path is not None and self.spec.path is None:
            await asyncio.to_thread(remove_folder, path)

    async def _run(self, name: HookName, hook_input: HookInput) -> None:
        """Run the workspace's hook of this name, if it has one."""
        self._hooks_started = self._hooks_started or name is HookName.BEFORE_ALL
        hook = self.spec.hooks.get(name)
        if hook is not None:
            hook_input = hook_input._replace(workspace_path=str(self.path))
            await run_hook(name, hook, hook_input, self.workspaces.suite_folder)
