"""A workspace: the folder that a test's target works in, and what prepares it (test-files.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

BEFORE_S: Final = 60.0
AFTER_S: Final = 30.0


class HookName(StrEnum):
    """When a hook runs: once for a workspace, or for each test in it."""

    BEFORE_ALL = "before_all"
    BEFORE_EACH = "before_each"
    AFTER_EACH = "after_each"
    AFTER_ALL = "after_all"


_TARGET_HOOKS: Final = "target_hooks"

# What concerns a single test leaves the workspace what it is to the others.
EACH: Final = frozenset({HookName.BEFORE_EACH, HookName.AFTER_EACH})
BEFORE: Final = frozenset({HookName.BEFORE_ALL, HookName.BEFORE_EACH})


@dataclass(frozen=True, slots=True)
class Hook:
    """A program that is told of a workspace; an array runs without a shell.

    `cwd` is relative to the suite's folder, which is the default. With `reset` the workspace is
    first taken back to what `before_all` left; there may be no program then.
    """

    command: str | tuple[str, ...] | None
    timeout_s: float
    cwd: str | None = None
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository in a workspace: `source` is a URL or a folder (`is_local`).

    `checkout` is a commit, a tag or a branch, by default the source's own; `ancestor` counts so
    many first parents back from it. At most the last `depth` commits are fetched; with `sparse`
    only these folders are written.
    """

    path: str
    source: str
    is_local: bool = False
    checkout: str | None = None
    ancestor: int = 0
    depth: int | None = None
    sparse: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """What a workspace is made of.

    `template` is copied; `path` is a folder that is used as it is. `shared` says that tests take
    turns in one workspace; else each work item has its own. `target_hooks` are those of the target
    that works in it: they run after the workspace's `before` hooks and before its `after` hooks.
    """

    shared: bool = True
    template: str | None = None
    path: str | None = None
    repos: tuple[Repository, ...] = ()
    hooks: Mapping[HookName, Hook] = field(default_factory=dict)
    target_hooks: Mapping[HookName, Hook] = field(default_factory=dict)

    @property
    def resets(self) -> bool:
        """Whether a hook takes the workspace back to an earlier state."""
        return any(hook.reset for hook in self.hooks.values())


def spec_of(raw: Mapping[str, Any]) -> WorkspaceSpec:
    """Return what a case's `workspace` (JSON values, as the loader made them) says."""
    return WorkspaceSpec(
        shared=raw.get("isolation", "shared") == "shared",
        template=raw.get("template"),
        path=raw.get("path"),
        repos=tuple(
            Repository(**{**entry, "sparse": tuple(entry.get("sparse", ()))})
            for entry in raw.get("repos", ())
        ),
        hooks=_hooks(raw.get("hooks", {})),
        target_hooks=_hooks(raw.get(_TARGET_HOOKS, {})),
    )


def with_target_hooks(raw: Mapping[str, Any], hooks: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a case's `workspace` with the hooks of the target that works in it."""
    return {**raw, _TARGET_HOOKS: hooks} if hooks else raw


def _hooks(raw: Mapping[str, Any]) -> dict[HookName, Hook]:
    return {HookName(name): _hook(entry) for name, entry in raw.items()}


def _hook(raw: Mapping[str, Any]) -> Hook:
    command = raw.get("command")
    return Hook(
        tuple(command) if isinstance(command, list | tuple) else command,
        raw["timeout_s"],
        raw.get("cwd"),
        raw.get("reset", False),
    )
