"""Which version of an npm package a suite has beside it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from evalcore.settings import ancestors_within, repository_root


def installed_version(folder: Path, packages: tuple[str, ...]) -> str | None:
    """Return the version of the nearest of the packages from `folder` up to its repository's root.

    It is installed in a `node_modules` there, or is a package of the repository itself
    (`packages/NAME`). None if there is none.
    """
    for ancestor in ancestors_within(folder, repository_root(folder)):
        for package in packages:
            own = ancestor / "packages" / package.rpartition("/")[2]
            for home in (ancestor / "node_modules" / package, own):
                version = _version(home / "package.json", package)
                if version is not None:
                    return version
    return None


def _version(manifest: Path, package: str) -> str | None:
    with suppress(OSError, ValueError, RecursionError):
        value = json.loads(manifest.read_bytes())
        is_package = isinstance(value, dict) and value.get("name", package) == package
        version = value.get("version") if is_package else None
        return version if isinstance(version, str) else None
    return None
