"""Where things stand in a store: the keys of docs/reference/store.md."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NewType
from urllib.parse import quote

from evalcore.errors import UsageError

NameKey = NewType("NameKey", str)
"""One part of a key that stands for a name (`suite_key`)."""

BASELINES_PREFIX = "baselines/"
RECORDINGS_PREFIX = "recordings/"
RUNS_PREFIX = "runs/"
ANNOTATIONS_PREFIX = "annotations/"
REOPENED_PREFIX = "history/reopened/"
"""What the marks of runs start with that were executed again after they had been completed."""

_MAX_NAME_KEY_BYTES = 200  # a local file's name may have 255
_RUN_ID = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{6}")
_RUN_ID_TIME = "%Y%m%dT%H%M%SZ"
_SHARD_KEY = re.compile(r".*/results/(\d{5,})\.parquet")


def suite_key(name: str) -> NameKey:
    """Return the key part of a suite's name, or of any other name that stands in a key.

    Lower-cased; what is outside `[a-z0-9._-]` percent-encoded as UTF-8, as are the names `.` and
    `..`. Names that differ in case share a key. A key of more than 200 bytes is cut and ends in
    `~` and 16 hex digits of its SHA-256, so that a file system can hold it. An empty name raises
    `UsageError`.
    """
    if not name:
        raise UsageError("a name is empty: give the suite a `name`")
    # A lone surrogate cannot be encoded otherwise, and YAML and JSON can spell one.
    whole = quote(name.lower().encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")
    if whole in {".", ".."}:
        whole = whole.replace(".", "%2E")
    if len(whole) > _MAX_NAME_KEY_BYTES:
        digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
        begin = re.sub("%.?$", "", whole[: _MAX_NAME_KEY_BYTES - len(digest) - 1])
        whole = f"{begin}~{digest}"
    return NameKey(whole)


def iso_time(moment: datetime) -> str:
    """Return an aware time as ISO 8601 in UTC, to the microsecond."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def new_run_id(now: datetime, random: bytes) -> str:
    """Return a run id: the aware time `now` in UTC to the second, and three random bytes."""
    return f"{now.astimezone(UTC).strftime(_RUN_ID_TIME)}-{random[:3].hex():0>6}"


def run_created_at(run_id: str) -> datetime | None:
    """Return the time in a run id (aware, UTC), or None if `run_id` is not one."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        return None
    try:
        return datetime.strptime(match[1], _RUN_ID_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def run_id_time(moment: datetime) -> str:
    """Return what the ids of runs that are created at an aware time start with.

    As texts, ids of earlier runs are less than this, those of later runs greater.
    """
    return moment.astimezone(UTC).strftime(_RUN_ID_TIME)


def reopened_key(run_id: str) -> str:
    """Return the key of the mark that a completed run was reopened."""
    return f"{REOPENED_PREFIX}{run_id}"


class _Below:
    """A key that stands at the same place below every folder (of a run, of a dataset)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, keys: RunKeys | DatasetKeys, _: type | None = None) -> str:
        return keys.folder + self._name


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The keys of one run. `suite` is the key of the suite's name: `suite_key(name)`.

    Raises `UsageError` for a `run_id` that is none.
    """

    suite: NameKey
    run_id: str

    def __post_init__(self) -> None:
        if run_created_at(self.run_id) is None:
            raise UsageError(
                f"{self.run_id!r} is not a run id (such as 20260518T100000Z-0a1b2c): "
                "`evalcore runs list` shows them"
            )

    @property
    def folder(self) -> str:
        """What every key of the run starts with."""
        return f"{runs_prefix(self.suite)}{self.run_id}/"

    manifest = _Below("manifest.json")
    """The manifest: created first, changed by compare-and-swap."""
    plan_prefix = _Below("plan/")
    """What every part of the plan starts with."""
    plan_signature = _Below("plan/signature.json")
    """What the plan was when it was planned, signed."""
    plan_suite = _Below("plan/suite.json")
    """The suite without its cases."""
    decided = _Below("DECIDED")
    """Says that the run's gates are decided before all of its items were executed."""
    results_prefix = _Below("results/")
    """What the results of all shards start with."""
    lease = _Below("lease.json")
    """Which process coordinates the run; changed by compare-and-swap."""
    limits = _Below("limits.json")
    """What the run's processes have of its limits; changed by compare-and-swap."""
    cancel = _Below("CANCEL")
    """Stands there when the run is to be cancelled."""
    events_prefix = _Below("events/")
    """What the events and snapshots of executed workflows start with."""
    results_dropped = _Below("RESULTS-DROPPED")
    """Stands there when compaction has deleted the results, which the history has."""
    report = _Below("report.json")
    """The report, as JSON."""

    def plan_part(self, number: int) -> str:
        """One part of the cases, counted from 0: JSON lines, compressed."""
        return f"{self.folder}plan/cases-{number:05d}.jsonl.zst"

    def past_part(self, name: str) -> str:
        """Rows of the earlier runs that gates over time look back on."""
        return f"{self.folder}plan/{name}.parquet"

    def reuse_part(self, number: int) -> str:
        """Rows of earlier runs that items of this one take over, counted from 0."""
        return f"{self.folder}plan/reuse-{number:05d}.parquet"

    def result(self, shard: int) -> str:
        """The rows of one shard, counted from 0; written once."""
        return f"{self.results_prefix}{shard:05d}.parquet"

    def damaged_part(self, shard: int, digest: str) -> str:
        """A part that was taken out of the results: its shard, its content's digest in hex."""
        return f"{self.folder}damaged/{shard:05d}-{digest}.parquet"

    def item_events(self, item: int) -> str:
        """What the events and snapshots of one work item start with."""
        return f"{self.events_prefix}{item:07d}/"


def runs_prefix(suite: NameKey) -> str:
    """Return what the keys of all runs of a suite start with."""
    return f"{RUNS_PREFIX}{suite}/"


def annotations_prefix(suite: NameKey) -> str:
    """Return what the keys of all labels of a suite start with."""
    return f"{ANNOTATIONS_PREFIX}{suite}/"


def parse_shard_key(key: str) -> int | None:
    """Return the shard whose result stands at `key`; None for other keys."""
    match = _SHARD_KEY.fullmatch(key)
    return int(match[1]) if match else None


def recording_key(digest: str) -> str:
    """Return the key of a provider exchange, given the hex digest that names it."""
    return f"{RECORDINGS_PREFIX}{digest[:2]}/{digest}"


def blob_key(sha256: str) -> str:
    """Return the key of a blob, given the SHA-256 of its content in hex."""
    return f"blobs/{sha256[:2]}/{sha256}"


def baseline_key(suite: NameKey, name: str) -> str:
    """Return the key of the pointer to a suite's baseline of that name."""
    return f"{BASELINES_PREFIX}{suite}/{suite_key(name)}.json"


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

    pending_prefix = _Below("pending/")
    """What the captures that wait start with."""
    refused_prefix = _Below("refused/")
    """What the lists of refused captures start with."""
    pin = _Below("pin.json")
    """Which version `latest` means; changed by compare-and-swap."""

    def pending_batch(self, moment: datetime, random: bytes) -> str:
        """Captures that one process wrote at once; their order is that of their times."""
        return f"{self.pending_prefix}{_stamp(moment)}-{random.hex()}.jsonl.zst"

    def refused(self, moment: datetime, random: bytes) -> str:
        """The ids of captures that were refused at once."""
        return f"{self.refused_prefix}{_stamp(moment)}-{random.hex()}.json"


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S%fZ")
