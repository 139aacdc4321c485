"""Where datasets stand in a store: versions, their cases, captures that wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from evalcore.storage.layout import NameKey

DATASETS_PREFIX: Final = "datasets/"


@dataclass(frozen=True, slots=True)
class DatasetKeys:
    """The keys of one dataset. `name` is the key of its name: `suite_key(name)`."""

    name: NameKey

    @property
    def folder(self) -> str:
        """What every key of the dataset starts with."""
        return f"{DATASETS_PREFIX}{self.name}/"

    def version_folder(self, version: int) -> str:
        """What the keys of one version start with."""
        return f"{self.folder}{version}/"

    def version(self, version: int) -> str:
        """What a version is made of; created once, after its cases."""
        return f"{self.version_folder(version)}version.json"

    def part(self, version: int, sha256: str) -> str:
        """Cases that a version adds, by the SHA-256 of their JSON lines; compressed."""
        return f"{self.version_folder(version)}{sha256}.jsonl.zst"

    @property
    def pending_prefix(self) -> str:
        """What the captures that wait start with."""
        return f"{self.folder}pending/"

    def pending_batch(self, moment: datetime, random: bytes) -> str:
        """Captures that one process wrote at once; their order is that of their times."""
        return f"{self.pending_prefix}{_stamp(moment)}-{random.hex()}.jsonl.zst"

    @property
    def refused_prefix(self) -> str:
        """What the lists of refused captures start with."""
        return f"{self.folder}refused/"

    def refused(self, moment: datetime, random: bytes) -> str:
        """The ids of captures that were refused at once."""
        return f"{self.refused_prefix}{_stamp(moment)}-{random.hex()}.json"

    @property
    def pin(self) -> str:
        """Which version `latest` means; changed by compare-and-swap."""
        return f"{self.folder}pin.json"


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S%fZ")
