"""A repository of a workspace: its source, its commit, and what is written of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from evalcore.formats.parts.workspace_shapes import RepositoryShape

_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", re.IGNORECASE)
_GITHUB: Final = re.compile(r"[\w.-]+/[\w.-]+")


def read_repository(raw: RepositoryShape, folder: Path) -> dict[str, Any]:
    """Return a repository as the plan stores it; `folder` is where local paths begin."""
    source, is_local = _source(raw)
    if is_local and source and not source.startswith("file://"):
        source = os.path.normpath(folder / source)
    checkout = raw.get("checkout") or {}
    if isinstance(checkout, str):
        checkout = {"ref": checkout}
    clone = raw.get("clone", {})
    commits = (raw.get("commit"), raw.get("base_commit"), checkout.get("base_commit"))
    repository = {
        "path": raw["path"],
        "source": source,
        "is_local": is_local,
        "checkout": next(filter(None, commits), checkout.get("ref")),
        "ancestor": raw.get("ancestor", checkout.get("ancestor", 0)),
    }
    sparse = raw.get("sparse", clone.get("sparse"))
    return {
        **repository,
        **({"depth": clone["depth"]} if "depth" in clone else {}),
        **({"sparse": list(sparse)} if sparse else {}),
    }


def _source(raw: RepositoryShape) -> tuple[str, bool]:
    """Return the address or path of a repository (empty: none), and whether it is a path."""
    if "repo" in raw:
        name = raw["repo"].strip()
        if _GITHUB.fullmatch(name) and not name.startswith("."):
            return f"https://github.com/{name}.git", False
        return name, not _ELSEWHERE.match(name) or name.startswith("file://")
    source = raw.get("source", "")
    if isinstance(source, str):
        return source, not _ELSEWHERE.match(source) or source.startswith("file://")
    is_local = "path" in source or source.get("type") == "local"
    return source.get("path") or source.get("url") or "", is_local


def conflict(raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key of a repository that says again what another says, and a message."""
    if "repo" in raw and "source" in raw:
        return "repo", "is given beside 'source'; keep one"
    keys = [key for key in ("commit", "base_commit", "checkout") if key in raw]
    if len(keys) > 1 and len({str(raw[key]) for key in keys}) > 1:
        return keys[1], f"is given beside '{keys[0]}'; keep one"
    return None


def refusal(repository: Mapping[str, Any], before: list[str]) -> tuple[str, str] | None:
    """Return the field of a repository that is wrong, and what is wrong with it; None if sound."""
    written, source, checkout = repository["path"], repository["source"], repository["checkout"]
    path = PurePosixPath(os.path.normpath(written))
    if path.is_absolute() or ".." in path.parts:
        return "path", f"'{written}' leads out of the workspace; name a folder in it"
    if str(path) in {os.path.normpath(name) for name in before}:
        return "path", f"'{written}' is another repository's"
    if not source:
        message = "names no repository: give it `repo`, or `source` with `url` or `path`"
        return "source", message
    if source.startswith("-") or source.lower().startswith("ext::"):
        return "source", f"'{source}' is no address of a repository"
    if (checkout or "").startswith("-"):
        return "checkout", f"'{checkout}' is no commit, tag or branch"
    if any(name.startswith("-") for name in repository.get("sparse", ())):
        return "sparse", "a folder's name cannot begin with '-'"
    return None
