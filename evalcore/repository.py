"""The repository that holds a suite: its root, and the configuration that applies below it.

Configuration is looked for from a folder upward to the root of its repository and never above
(docs/reference/trust.md). A file counts only if no other user can have put it there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_MARK = ".git"


class Refused(NamedTuple):
    """A file that was looked for and does not count, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is not read: {self.reason}"


class Upward(NamedTuple):
    """The nearest file that counts (resolved), if there is one, and those that were passed over."""

    path: Path | None
    refused: tuple[Refused, ...] = ()


def repository_root(folder: Path) -> Path:
    """Return the nearest folder upward from `folder` with a `.git`, else `folder` (resolved).

    A `.git` may be a file, as in a worktree. One that belongs to another user is none.
    """
    start = folder.resolve()
    owners = _owners(start)
    for candidate in (start, *start.parents):
        with suppress(OSError):
            if (candidate / _MARK).lstat().st_uid in owners:
                return candidate
    return start


def find_upward(folder: Path, names: Sequence[str]) -> Upward:
    """Return the nearest of the files `names` from `folder` up to the root of its repository.

    Within a folder the first of the names wins.
    """
    start = folder.resolve()
    root, owners = repository_root(start), _owners(start)
    refused: list[Refused] = []
    for ancestor in ancestors_within(start, root):
        for name in names:
            path = ancestor / name
            if not _is_file(path):
                continue
            resolved = path.resolve()
            reason = _first_reason(ancestor, name, owners)
            if reason is None and not resolved.is_relative_to(root):
                reason = f"the link leads outside {root}"
            if reason is None and resolved != path:
                reason = _reason(resolved, owners)
            if reason is None:
                return Upward(path, tuple(refused))
            refused.append(Refused(path, reason))
    return Upward(None, tuple(refused))


def ancestors_within(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to `root`."""
    for ancestor in (folder, *folder.parents):
        yield ancestor
        if ancestor == root:
            return


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file system takes: too long, or with a NUL
        return False


def _owners(folder: Path) -> frozenset[int]:
    """Return the users who may say what applies to a suite: ourselves, root, the folder's owner.

    Who owns the suite's folder wrote the suite, or could have: as root in a container, say, that
    works on a folder of the machine.
    """
    with suppress(OSError):
        return frozenset({os.geteuid(), 0, folder.stat().st_uid})
    return frozenset({os.geteuid(), 0})


def _first_reason(folder: Path, name: str, owners: frozenset[int]) -> str | None:
    """Return why others may have put something at `place` / `name` or at a folder on the way."""
    path = folder
    for part in Path(name).parts:
        path = path / part
        reason = _reason(path, owners)
        if reason is not None:
            return reason
    return None


def _reason(path: Path, owners: frozenset[int]) -> str | None:
    """Return why others may have put something at `path`; None if they cannot."""
    try:
        folder, entry = path.parent.stat(), path.lstat()
    except OSError as error:
        return error.strerror or str(error)
    if entry.st_uid not in owners:
        return "it belongs to another user"
    if folder.st_uid not in owners:
        return f"the folder {path.parent} belongs to another user"
    mode = folder.st_mode
    # In such a folder everybody removes and replaces only what is their own.
    if mode & stat.S_ISVTX:
        return None
    # A user's own group has, as a rule, one member.
    shared = mode & stat.S_IWGRP and folder.st_gid != os.getegid()
    if shared or mode & stat.S_IWOTH:
        why = f"other users may write to {path.parent} (mode {stat.S_IMODE(mode):o})"
        return f"{why}; `chmod go-w` helps"
    return None


class Head(NamedTuple):
    """What a repository has checked out: a commit, and its branch; None where that is not known."""

    commit: str | None
    branch: str | None


def read_head(folder: Path, environment: Mapping[str, str]) -> Head:
    """Return the commit and the branch of the repository that holds `folder`.

    Read from its files, without git. What they do not say (a detached head, a folder without its
    repository) is what the environment of GitHub Actions and GitLab CI says.
    """
    commit = branch = None
    with suppress(OSError, UnicodeDecodeError):
        git = _git_folder(repository_root(folder) / _MARK)
        head = (git / "HEAD").read_text("utf-8").strip()
        reference = head.removeprefix("ref: ")
        commit = head if reference == head else _commit_of(git, reference)
        branch = None if reference == head else reference.removeprefix("refs/heads/")
    if branch is None:
        branch = _first_set(environment, _BRANCH_VARIABLES)
    if commit is None:
        commit = _first_set(environment, _COMMIT_VARIABLES)
    return Head(commit if commit and _COMMIT.fullmatch(commit) else None, branch)


def is_dirty(folder: Path) -> bool | None:
    """Whether tracked files of `folder` differ from the commit; untracked files do not count.

    None if the folder is in no repository, or `git` is not installed, fails or takes over a second.
    """
    if not (repository_root(folder) / _MARK).exists():
        return None
    import subprocess

    # No monitor of the repository's configuration is started, and no lock is taken.
    options = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(
            ["git", *options, *status, "--", "."],  # noqa: S607  (the user's own git)
            cwd=folder,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_STATUS_TIMEOUT_S,
            check=True,
        )
        return bool(answer.stdout)
    return None


_STATUS_TIMEOUT_S = 1.0
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_COMMIT_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
_BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")


def _git_folder(mark: Path) -> Path:
    """Return the folder that `.git` is, or that it names as in a worktree."""
    if mark.is_dir():
        return mark
    return mark.parent / mark.read_text("utf-8").strip().removeprefix("gitdir: ")


def _commit_of(git: Path, reference: str) -> str | None:
    """Return the commit of a reference; worktrees share those of their repository."""
    folders = [git]
    with suppress(OSError):
        folders.append(git / (git / "commondir").read_text("utf-8").strip())
    for folder in folders:
        with suppress(OSError):
            return (folder / reference).read_text("utf-8").strip()
    for folder in folders:
        with suppress(OSError):
            for line in (folder / "packed-refs").read_text("utf-8").splitlines():
                commit, _, name = line.partition(" ")
                if name == reference:
                    return commit
    return None


def _first_set(environment: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((text for name in names if (text := environment.get(name))), None)
