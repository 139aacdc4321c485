"""Which version of an npm package is installed for a suite."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from evalcore.repository import ancestors_within, repository_root


def installed_version(folder: Path, packages: tuple[str, ...]) -> str | None:
    """Return the version of the nearest of the packages from `folder` up to its repository's root.

    None if none is installed in a `node_modules` there.
    """
    for ancestor in ancestors_within(folder, repository_root(folder)):
        for package in packages:
            with suppress(OSError, ValueError, RecursionError):
                manifest = ancestor / "node_modules" / package / "package.json"
                version = json.loads(manifest.read_bytes()).get("version")
                if isinstance(version, str):
                    return version
    return None
