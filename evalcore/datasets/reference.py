"""How a suite and the command line name a dataset: `support`, `support@3`, `support@latest`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from evalcore.errors import UsageError

SCHEME: Final = "dataset:"
LATEST: Final = "latest"
_VERSION: Final = re.compile(r"v?([1-9]\d{0,8})")


class DatasetReference(NamedTuple):
    """A dataset and one of its versions; without a `version`, the latest."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.version or LATEST}"


def names_dataset(text: object) -> bool:
    """Whether a text in the place of tests or cases names a dataset."""
    return isinstance(text, str) and text.startswith(SCHEME)


def parse_reference(text: str) -> DatasetReference:
    """Return what a text refers to, with or without `dataset:`; raise `UsageError`."""
    name, separator, version = text.removeprefix(SCHEME).partition("@")
    name, version = name.strip(), version.strip()
    if not name:
        raise UsageError(f"'{text}' names no dataset: write NAME, NAME@3 or NAME@{LATEST}")
    if not separator or version == LATEST:
        return DatasetReference(name)
    match = _VERSION.fullmatch(version)
    if match is None:
        raise UsageError(f"'{text}': a version is a number such as {name}@3, or {name}@{LATEST}")
    return DatasetReference(name, int(match[1]))
