"""The foreign text of workspaces (docs/reference/workspaces.md)."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, Required, cast

from pydantic import Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.errors import EvalError
from evalcore.formats.documents import read_named
from evalcore.formats.section import STRICT
from evalcore.formats.variables import Variables, interpolate
from evalcore.model.suite import AFTER_S, BEFORE_S, EACH
from evalcore.problems import Problems
from evalcore.shapes import Text, TextOrTexts, text_or_mapping
from evalcore.trust.files import place_inside, repository_root, resolve_folder
from evalcore.wording import Loc


@with_config(STRICT)
class HookShape(TypedDict, total=False):
    """A program that is told of the workspace on its standard input."""

    command: Required[TextOrTexts]
    timeout_ms: Annotated[float, Field(gt=0)]
    cwd: Text


@with_config(STRICT)
class HooksShape(TypedDict, total=False):
    """What runs before and after; null takes back what the suite says, `enabled: false` all."""

    enabled: bool
    before_all: HookShape | None
    before_each: HookShape | None
    after_each: HookShape | None
    after_all: HookShape | None


class RepositorySource(TypedDict, total=False):
    """Where a repository comes from: `url` of a server, or `path` of a folder."""

    type: Literal["git", "local"]
    url: Text
    path: Text


class RepositoryCheckout(TypedDict, total=False):
    """Which commit: a commit, a tag or a branch; `ancestor` counts back from it."""

    ref: Text
    ancestor: Annotated[int, Field(ge=0)]


@with_config(STRICT)
class RepositoryShape(TypedDict, total=False):
    """A git repository in the workspace, at a commit, a tag or a branch."""

    path: Required[Text]
    source: Required[
        Annotated[
            Annotated[Text, Tag("<text>")] | Annotated[RepositorySource, Tag("<mapping>")],
            Discriminator(text_or_mapping),
        ]
    ]
    checkout: Annotated[
        Annotated[Text, Tag("<text>")] | Annotated[RepositoryCheckout, Tag("<mapping>")],
        Discriminator(text_or_mapping),
    ]


@with_config(STRICT)
class WorkspaceShape(TypedDict, total=False):
    """The folder that targets work in."""

    template: Text | None
    isolation: Literal["shared", "per_test", "per-test"]
    path: Text | None
    repos: list[RepositoryShape] | None
    hooks: HooksShape | None


WorkspaceValue = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[WorkspaceShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", re.IGNORECASE)


def _repository(raw: RepositoryShape, folder: Path) -> dict[str, Any]:
    """Return a repository as the plan stores it; `folder` is where local paths begin."""
    written, named = raw["source"], raw.get("checkout")
    commit: RepositoryCheckout = {"ref": named} if isinstance(named, str) else (named or {})
    source = written if isinstance(written, str) else written.get("path") or written.get("url", "")
    is_path = not _ELSEWHERE.match(source)
    return {
        "path": raw["path"],
        "source": os.path.normpath(folder / source) if is_path and source else source,
        "is_local": is_path or source.startswith("file://"),
        "checkout": commit.get("ref"),
        "ancestor": commit.get("ancestor", 0),
    }


def _refusal(repository: Mapping[str, Any], before: list[str]) -> tuple[str, str] | None:
    """Return the field of a repository that is wrong, and what is wrong with it; None if sound."""
    written, source = repository["path"], repository["source"]
    path, checkout = PurePosixPath(os.path.normpath(written)), repository["checkout"] or ""
    if path.is_absolute() or ".." in path.parts:
        return "path", f"'{written}' leads out of the workspace; name a folder in it"
    if str(path) in map(os.path.normpath, before):
        return "path", f"'{written}' is another repository's"
    if not source or source.startswith("-") or source.lower().startswith("ext::"):
        return "source", f"'{source}' is no address of a repository: give it `url` or `path`"
    return (
        ("checkout", f"'{checkout}' is no commit, tag or branch") if checkout[:1] == "-" else None
    )


Workspace = dict[str, Any]

_DIGESTED_BYTES = 64 << 20


class WorkspaceReader:
    """Reads the suite's workspace once, and what a test replaces of it.

    Cases that replace nothing share one object. Mistakes in files that a `workspace:` names are
    noted in `file_problems`.
    """

    def __init__(
        self, raw: object, folder: Path, variables: Variables, problems: Problems, loc: Loc
    ) -> None:
        self.file_problems: list[Problems] = []
        self._folder = folder
        self._variables = variables
        self._digests: dict[str, str] = {}
        self._suite = None if raw is None else self._read(raw, loc, problems)
        self._shared = None if self._suite is None else self._finished(self._suite, loc, problems)

    def of_test(self, raw: object, loc: Loc, problems: Problems) -> Workspace | None:
        """Return the workspace of a test whose own `workspace` is `raw` (None: the suite's).

        It is the test's own unless it differs from the suite's by `each` hooks only.
        """
        if raw is None:
            return self._shared
        own = self._read(raw, loc, problems)
        if own is None:
            return None
        merged = _merged(self._suite or {}, own)
        differs = self._suite is None or _without_each(merged) != _without_each(self._suite)
        if differs and merged.get("path") is None:
            merged["isolation"] = "per_test"
        return self._finished(merged, loc, problems)

    def _read(self, raw: object, loc: Loc, problems: Problems) -> Workspace | None:
        """Return a workspace with its parts in one form; None, noted, if it is misshapen."""
        folder = Path()
        if isinstance(raw, str):
            named = self._named(raw, loc, problems)
            if named is None:
                return None
            raw, folder, problems, loc = named
        if not problems.check_shape(raw, WorkspaceShape, loc):
            return None
        workspace: Workspace = dict(cast("WorkspaceShape", raw))
        if workspace.get("isolation") == "per-test":
            workspace["isolation"] = "per_test"
        for name in ("template", "path"):
            if workspace.get(name) is not None:
                workspace[name] = os.path.normpath(folder / workspace[name])
        if workspace.get("repos"):
            repositories = workspace["repos"]
            workspace["repos"] = self._repositories(repositories, folder, (*loc, "repos"), problems)
        if workspace.get("hooks"):
            workspace["hooks"] = self._hooks(workspace["hooks"], folder, (*loc, "hooks"), problems)
        if workspace.get("path"):
            self._place(workspace["path"], (*loc, "path"), problems)
        return workspace

    def _named(
        self, name: str, loc: Loc, problems: Problems
    ) -> tuple[object, Path, Problems, Loc] | None:
        """Return what a path stands for: a template, or the workspace that a YAML file holds."""
        if (self._folder / name).is_dir():
            return {"template": name}, Path(), problems, loc
        named = read_named(name, self._folder, loc, problems)
        if named is None:
            return None
        path, document, in_file = named
        self.file_problems.append(in_file)
        raw = interpolate(document.value, self._variables, (), in_file)
        inner: Loc = ()
        if isinstance(raw, dict) and set(raw) == {"workspace"}:
            raw, inner = raw["workspace"], ("workspace",)
        if not isinstance(raw, dict):
            in_file.add(inner, "expected a mapping: the fields of a workspace")
            return None
        return raw, Path(os.path.relpath(path.parent, self._folder.resolve())), in_file, inner

    def _repositories(
        self, raw: list[RepositoryShape], folder: Path, loc: Loc, problems: Problems
    ) -> list[Workspace]:
        repositories: list[Workspace] = []
        for index, entry in enumerate(raw):
            repository = _repository(entry, folder)
            reason = _refusal(repository, [before["path"] for before in repositories])
            if reason is not None:
                problems.add((*loc, index, reason[0]), reason[1])
            elif repository["is_local"]:
                at = (*loc, index, "source")
                path = self._place(repository["source"].removeprefix("file://"), at, problems)
                if path is not None and not path.is_dir():
                    problems.add(at, f"there is no folder '{path}'")
            repositories.append(repository)
        return repositories

    def _hooks(
        self, raw: Mapping[str, Any], folder: Path, loc: Loc, problems: Problems
    ) -> Workspace:
        """Return the hooks that are switched on."""
        enabled = raw.get("enabled", True)
        hooks: Workspace = {}
        for name, written in raw.items():
            if name == "enabled":
                continue
            hook = _hook(name, written, folder) if written is not None and enabled else None
            if hook is not None and "cwd" in hook:
                self._place(hook["cwd"], (*loc, name, "cwd"), problems)
            hooks[name] = hook
        return hooks

    def _place(self, written: str, loc: Loc, problems: Problems) -> Path | None:
        """Return a path inside the repository; None, noted, for one outside."""
        try:
            return place_inside(self._folder, written)
        except EvalError as error:
            problems.add(loc, str(error))
            return None

    def _finished(self, workspace: Workspace, loc: Loc, problems: Problems) -> Workspace:
        """Return a workspace without its empty fields; note fields that exclude each other."""
        workspace = {name: value for name, value in workspace.items() if value}
        if "hooks" in workspace:
            hooks = workspace["hooks"].items()
            workspace["hooks"] = {name: hook for name, hook in hooks if hook}
        path = workspace.get("path")
        reasons = {
            "is used as it is, so no template goes into it; keep one": "template" in workspace,
            "is one folder for all tests, so `isolation: per_test` cannot be": (
                workspace.get("isolation") == "per_test"
            ),
            f"'{path}' is a file; a workspace is a folder": (self._folder / (path or "")).is_file(),
        }
        for reason in (each for each, applies in reasons.items() if path is not None and applies):
            problems.add((*loc, "path"), reason)
        if "template" in workspace:
            self._add_digest(workspace, loc, problems)
        return workspace

    def _add_digest(self, workspace: Workspace, loc: Loc, problems: Problems) -> None:
        """Add the digest of what the template holds, which is a part of the case's identity."""
        name = workspace["template"]
        if name not in self._digests:
            try:
                path = resolve_folder(repository_root(self._folder), self._folder, name)
                self._digests[name] = _digest(path)
            except (EvalError, OSError) as error:
                problems.add((*loc, "template"), str(error))
                return
        workspace["template_sha256"] = self._digests[name]


def _merged(suite: Workspace, own: Workspace) -> Workspace:
    """Return the suite's workspace with the test's fields, and each of its hooks, over it."""
    # A folder that is used as it is and one that is copied replace each other.
    other = {"template": "path", "path": "template"}
    dropped = {other[name] for name in other if own.get(name) is not None and name in own}
    merged = {name: value for name, value in suite.items() if name not in dropped} | own
    hooks = {**(suite.get("hooks") or {}), **(own.get("hooks") or {})}
    if "hooks" in own and own["hooks"] is None:
        hooks = {}
    return {**merged, "hooks": hooks}


def _without_each(workspace: Workspace) -> Workspace:
    hooks = {
        name: hook
        for name, hook in (workspace.get("hooks") or {}).items()
        if name not in EACH and hook
    }
    fields = {name: value for name, value in workspace.items() if value and name != "hooks"}
    return {**fields, "isolation": fields.get("isolation", "shared"), "hooks": hooks}


def _hook(name: str, raw: HookShape, folder: Path) -> Workspace:
    """Return a hook as the plan stores it."""
    default_s = BEFORE_S if name.startswith("before") else AFTER_S
    hook: Workspace = {
        "command": raw["command"],
        "timeout_s": raw["timeout_ms"] / 1000 if "timeout_ms" in raw else default_s,
    }
    cwd = os.path.normpath(folder / raw.get("cwd", "."))
    return hook if cwd == "." else {**hook, "cwd": cwd}


def _digest(folder: Path) -> str:
    """Return the SHA-256 of a folder's files; of those beyond 64 MiB only size and time count."""
    digest = hashlib.sha256()
    rest_bytes = _DIGESTED_BYTES
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(root, name)
            status = path.lstat()
            digest.update(os.fsencode(path.relative_to(folder)) + b"\0%o\0" % status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                digest.update(os.fsencode(path.readlink()))
            elif stat.S_ISREG(status.st_mode) and status.st_size <= rest_bytes:
                rest_bytes -= status.st_size
                digest.update(path.read_bytes())
            else:
                digest.update(b"%d %d" % (status.st_size, status.st_mtime_ns))
            digest.update(b"\0")
    return digest.hexdigest()
