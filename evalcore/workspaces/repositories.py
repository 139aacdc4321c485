"""Git repositories in workspaces: fetched once per process, cloned for each workspace."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from pathlib import Path
from typing import Final

from evalcore.errors import EvalError, TargetError
from evalcore.model.suite import Repository
from evalcore.trust.commands import run_command
from evalcore.trust.files import place_inside
from evalcore.trust.text import last_words

_FETCH_S: Final = 1_800.0
_LOCAL_S: Final = 600.0
# git neither asks a person nor runs a program that an address names.
_RULES: Final = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
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


class Repositories:
    """The sources that this process has fetched, below a folder of its own."""

    def __init__(self, folder: Path, suite_folder: Path) -> None:
        self._folder = folder
        self._suite_folder = suite_folder
        self._locks: dict[str, asyncio.Lock] = {}

    async def check_out(self, repository: Repository, workspace: Path) -> None:
        """Put the repository into a workspace, its commit checked out.

        Raise `TargetError` that says what git could not do.
        """
        source = repository.source
        if repository.is_local:
            try:
                source = str(place_inside(self._suite_folder, source.removeprefix("file://")))
            except EvalError as error:
                raise TargetError("workspace", str(error)) from error
        mirror = self._folder / hashlib.sha256(source.encode()).hexdigest()[:16]
        async with self._locks.setdefault(mirror.name, asyncio.Lock()):
            commit = await self._fetched(source, mirror, repository)
        clone = workspace / repository.path
        clone.mkdir(parents=True, exist_ok=True)
        await _git(clone, "clone", "--quiet", "--local", "--no-checkout", "--", str(mirror), ".")
        await _git(clone, "remote", "set-url", "origin", source)
        await _git(clone, "checkout", "--quiet", "--detach", commit)

    async def _fetched(self, source: str, mirror: Path, repository: Repository) -> str:
        """Return the commit that is meant, of a source that was fetched."""
        if not mirror.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            command = ("clone", "--quiet", "--mirror", "--", source, mirror.name)
            await _git(self._folder, *command, timeout_s=_FETCH_S)
        revision = repository.checkout or "HEAD"
        name = f"{revision}~{repository.ancestor}" if repository.ancestor else revision
        resolve = ("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
        try:
            return await _git(mirror, *resolve)
        except TargetError as error:
            if not _COMMIT.fullmatch(revision):
                message = f"{_without_passwords(source)} has no commit, tag or branch {revision!r}"
                raise TargetError("workspace", message) from error
            # No branch holds it; some servers give it all the same.
            await _git(mirror, "fetch", "--quiet", "origin", revision)
            return await _git(mirror, *resolve)


async def _git(folder: Path, verb: str, *arguments: str, timeout_s: float = _LOCAL_S) -> str:
    """Return what git prints in a folder; raise `TargetError` that says why it failed."""
    env = {name: os.environ[name] for name in _SURROUNDINGS if name in os.environ}
    result = await run_command(
        ["git", verb, *arguments], cwd=folder, timeout_s=timeout_s, env={**env, **_RULES}
    )
    if result.timed_out:
        raise TargetError("workspace", f"git {verb} failed: took longer than {timeout_s:g} s")
    if result.exit_code:
        reason = _without_passwords(last_words(result.stderr.decode(errors="replace")))
        raise TargetError("workspace", f"git {verb} failed: {reason}")
    return result.stdout.decode(errors="replace").strip()


def _without_passwords(text: str) -> str:
    """Return a text without the passwords of addresses in it."""
    return _CREDENTIALS.sub("", text)
