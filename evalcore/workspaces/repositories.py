"""Git repositories in workspaces: fetched once per process, cloned for each workspace."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.model.workspace import Repository
from evalcore.trust.commands import run_command
from evalcore.trust.files import place_inside
from evalcore.trust.text import last_words
from evalcore.workspaces.fair_lock import FairLock

_FETCH_S: Final = 1_800.0
_LOCAL_S: Final = 600.0
_SHOW_S: Final = 10.0
_SURROUNDINGS: Final = (
    "GIT_SSH_COMMAND",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "SSH_AUTH_SOCK",
    "https_proxy",
    "http_proxy",
    "no_proxy",
)
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]*@")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Checkout(NamedTuple):
    """What a workspace's repository is: a commit, and where its files can be read."""

    mirror: Path
    commit: str


class Repositories:
    """The sources that this process has fetched, below a folder of its own."""

    def __init__(self, folder: Path, suite_folder: Path) -> None:
        self._folder = folder
        self._suite_folder = suite_folder
        self._locks: dict[str, FairLock] = {}
        self._commits: dict[tuple[str, str], str] = {}

    async def check_out(self, repository: Repository, workspace: Path) -> Checkout:
        """Put the repository into a workspace, its commit checked out; return what it is.

        Raise `TargetError` that says what git could not do.
        """
        source = repository.source
        if repository.is_local:
            source = self._local(source.removeprefix("file://"))
        depth = "" if repository.depth is None else f" --depth {repository.depth}"
        name = hashlib.sha256(f"{source}{depth}".encode()).hexdigest()[:16]
        async with self._locks.setdefault(name, FairLock()):
            commit = await self._fetched(source, self._folder / name, repository)
        clone_path = workspace / repository.path
        clone_path.parent.mkdir(parents=True, exist_ok=True)
        clone = ["clone", "--quiet", "--local", "--no-checkout", "--"]
        await self._git([*clone, str(self._folder / name), str(clone_path)])
        await self._git(["-C", str(clone_path), "remote", "set-url", "origin", source])
        if repository.sparse:
            await self._git(["-C", str(clone_path), "sparse-checkout", "set", *repository.sparse])
        await self._git(["-C", str(clone_path), "checkout", "--quiet", "--detach", commit])
        return Checkout(self._folder / name, commit)

    def _local(self, name: str) -> str:
        try:
            return str(place_inside(self._suite_folder, name))
        except EvalError as error:
            raise TargetError("workspace", str(error)) from error

    async def _fetched(self, source: str, mirror: Path, repository: Repository) -> str:
        """Return the commit that is meant, of a source that was fetched."""
        if not mirror.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            options = _depth_options(repository)
            command = ["clone", "--quiet", "--mirror", *options, "--", source, str(mirror)]
            await self._git(command, timeout_s=_FETCH_S)
        revision = repository.checkout or "HEAD"
        name = f"{revision}~{repository.ancestor}" if repository.ancestor else revision
        key = (str(mirror), name)
        cached_commit = self._commits.get(key)
        if cached_commit is not None:
            return cached_commit
        resolve = ["-C", str(mirror), "rev-parse", "--quiet", "--verify", "--end-of-options"]
        try:
            commit = await self._git([*resolve, f"{name}^{{commit}}"])
        except TargetError as error:
            if repository.depth is not None and (mirror / "shallow").is_file():
                await self._git(["-C", str(mirror), "fetch", "--quiet", "--unshallow"], _FETCH_S)
                return await self._fetched(source, mirror, repository)
            if not _COMMIT.fullmatch(revision):
                message = f"{_without_passwords(source)} has no commit, tag or branch {revision!r}"
                raise TargetError("workspace", message) from error
            # No branch holds it; some servers give it all the same.
            await self._git(["-C", str(mirror), "fetch", "--quiet", "origin", revision])
            commit = await self._git([*resolve, f"{name}^{{commit}}"])
        self._commits[key] = commit.strip()
        return commit.strip()

    async def _git(self, arguments: Sequence[str], timeout_s: float = _LOCAL_S) -> str:
        env = {name: os.environ[name] for name in _SURROUNDINGS if name in os.environ}
        result = await run_command(
            ["git", *arguments], cwd=Path("/"), timeout_s=timeout_s, env={**env, **_environment()}
        )
        if result.exit_code or result.timed_out:
            error_output = last_words(result.stderr.decode(errors="replace"))
            reason = (
                f"took longer than {timeout_s:g} s"
                if result.timed_out
                else _without_passwords(error_output)
            )
            verb = next((word for word in arguments if word in _VERBS), "git")
            raise TargetError("workspace", f"git {verb} failed: {reason}")
        return result.stdout.decode(errors="replace")


def _depth_options(repository: Repository) -> list[str]:
    """Return the options of a clone that has the last commits only, of every branch."""
    if repository.depth is None:
        return []
    return ["--depth", str(repository.depth), "--no-single-branch"]


_VERBS: Final = frozenset({"clone", "checkout", "fetch", "remote", "rev-parse", "sparse-checkout"})


def _environment() -> dict[str, str]:
    """Return what keeps git from asking a person, and from other ways to run a program."""
    return {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}


def _without_passwords(text: str) -> str:
    """Return a text without the passwords of addresses in it."""
    return _CREDENTIALS.sub("", text)


def content_at(checkout: Checkout, name: str) -> bytes | None:
    """Return a file of a repository as it is in a commit; None if it is not there."""
    # Of the mirror: who works in the workspace may have told its clone to run something.
    blob = f"{checkout.commit}:{name}"
    command = ["git", "--git-dir", str(checkout.mirror), "cat-file", "blob", blob]
    try:
        process = subprocess.run(command, capture_output=True, timeout=_SHOW_S, check=False)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return process.stdout if process.returncode == 0 else None
