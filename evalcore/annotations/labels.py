"""Labels in the store: immutable objects, none overwritten and none lost; what they come to."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from typing import Annotated, Final, NamedTuple
from unicodedata import normalize

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from evalcore.errors import ObjectNotFoundError, RunConflictError, UsageError
from evalcore.model.annotation import AnswerForm, Label
from evalcore.storage.layout import NameKey, annotations_prefix, suite_key
from evalcore.storage.store import ObjectStore
from evalcore.wording import quote

LONGEST_COMMENT: Final = 10_000
_LONGEST_ANNOTATOR: Final = 200
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_OBJECT: Final = re.compile(r"annotations/([^/]+)/([0-9a-f]{64})/([^/]+)-([1-9]\d{0,8})\.json")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@with_config(ConfigDict(defer_build=True))
@dataclass(frozen=True, slots=True)
class LabelRecord:
    """One label of one annotator. `at` is ISO 8601 in UTC; `seconds` is how long it took.

    `label` is None where the annotator withdraws what they said before. `number` counts the
    records of an annotator on one content from 1; the highest one counts.
    """

    annotator: Annotated[str, Field(min_length=1)]
    label: Label | None
    at: str
    comment: str | None = None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    number: int = 1

    @property
    def annotator_key(self) -> NameKey:
        """What tells annotators apart: names that differ in case, or in Unicode's form, are one."""
        return suite_key(_composed(self.annotator))


class LabelAddress(NamedTuple):
    """Where a record stands: the suite's and the annotator's names as key parts."""

    suite: NameKey
    content: str
    annotator: NameKey
    number: int

    @property
    def key(self) -> str:
        """The object's key."""
        return f"{content_prefix(self.suite, self.content)}{self.annotator}-{self.number}.json"


def content_prefix(suite: NameKey, content: str) -> str:
    """Return what the keys of the labels of one content start with."""
    if _KEY.fullmatch(content) is None:
        raise UsageError(f"{quote(content)} is no key of a content: 64 hex digits")
    return f"{annotations_prefix(suite)}{content}/"


def parse_label_key(key: str) -> LabelAddress | None:
    """Return what the key of a label says; None for any other key."""
    match = _OBJECT.fullmatch(key)
    if match is None:
        return None
    return LabelAddress(NameKey(match[1]), match[2], NameKey(match[3]), int(match[4]))


def _composed(name: str) -> str:
    return normalize("NFC", name)


def check_annotator(name: str) -> str:
    """Return the name of an annotator without outer blanks; raise `UsageError`.

    In Unicode's composed form: keyboards and files spell the same `é` in two ways.
    """
    stripped = _composed(name.strip())
    if not stripped or len(stripped) > _LONGEST_ANNOTATOR or _CONTROL.search(stripped):
        raise UsageError(
            f"{quote(name)} cannot be the name of an annotator: 1 to {_LONGEST_ANNOTATOR} "
            "characters on one line, such as ann or ann@example.org"
        )
    return stripped


_STORED: Final = TypeAdapter(LabelRecord)


def encode_label(record: LabelRecord) -> bytes:
    """Return the object of a record: one line of JSON."""
    fields = {name: value for name, value in asdict(record).items() if name != "number"}
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def decode_label(data: bytes, address: LabelAddress) -> LabelRecord:
    """Return the record of an object; raise `ValueError` with what is wrong with it."""
    try:
        record = _STORED.validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"{field}: {first['msg']}" if field else first["msg"]) from error
    if suite_key(record.annotator) != address.annotator:
        raise ValueError(f"is the label of {quote(record.annotator)}, not of '{address.annotator}'")
    return replace(record, number=address.number)


@dataclass(frozen=True, slots=True)
class Consensus:
    """What people's labels come to; `annotators` are the keys of those whose `votes` count.

    `label` is the majority's, `mean` that of a scale; both are None while `missing` labels are
    awaited. `tied` says that one is awaited only because two labels have equally many votes.
    """

    votes: tuple[str | int, ...]
    missing: int
    annotators: tuple[str, ...] = ()
    label: str | None = None
    mean: float | None = None
    tied: bool = False


def latest_by_annotator(
    records: Iterable[LabelRecord], form: AnswerForm | None = None
) -> dict[str, LabelRecord]:
    """Return the last record of each annotator by their key; withdrawn ones are included.

    With a form, labels that it does not have are left out: questions in the same words with other
    answers share the records of a content.
    """
    latest: dict[str, LabelRecord] = {}
    for record in records:
        if form is not None and record.label is not None and not form.accepts(record.label):
            continue
        key = record.annotator_key
        if key not in latest or latest[key].number <= record.number:
            latest[key] = record
    return latest


def judged(records: Sequence[LabelRecord], form: AnswerForm, annotators: int) -> Consensus:
    """Return what the labels come to.

    The last label of each annotator counts; labels that the form does not have count nothing.
    With fewer than `annotators` labels the rest is missing. A tie of labels lacks one more, until
    one label has more votes than any other.
    """
    counted = {
        name: record.label
        for name, record in sorted(latest_by_annotator(records, form).items())
        if record.label is not None
    }
    votes, names = tuple(counted.values()), tuple(counted)
    missing = max(0, annotators - len(votes))
    if missing or not votes:
        return Consensus(votes, max(1, missing), names)
    if form.labels is None:
        return Consensus(votes, 0, names, mean=fsum(map(float, votes)) / len(votes))
    (first, most), *runners_up = Counter(map(str, votes)).most_common(2)
    if runners_up and runners_up[0][1] == most:
        return Consensus(votes, 1, names, tied=True)
    return Consensus(votes, 0, names, label=first)


_ATTEMPTS = 1_000
_FETCHERS = 8


class DamagedLabel(NamedTuple):
    """A label object that cannot be read: it counts as withdrawn."""

    key: str
    reason: str


class LabelBook:
    """The labels of one suite as this process has read them; safe in several threads.

    Objects never change, so each is read once. `refresh` reads what is new.
    """

    def __init__(self, store: ObjectStore, suite: str) -> None:
        """Take the suite's name; nothing is read."""
        self._store, self._suite = store, suite_key(suite)
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._records: dict[str, dict[LabelAddress, LabelRecord]] = {}
        self._damaged: dict[str, DamagedLabel] = {}
        self._complete = False

    @property
    def damaged(self) -> tuple[DamagedLabel, ...]:
        """The objects that could not be read, by their keys."""
        with self._lock:
            return tuple(self._damaged[key] for key in sorted(self._damaged))

    @property
    def contents(self) -> frozenset[str]:
        """The keys of the contents that have labels."""
        with self._lock:
            return frozenset(self._records)

    def refresh(self, content: str | None = None) -> None:
        """Read the labels that are new, of one content or of the whole suite."""
        suite = self._suite
        prefix = annotations_prefix(suite) if content is None else content_prefix(suite, content)
        listed = [parse_label_key(info.key) for info in self._store.list(prefix)]
        with self._lock:
            unread = [
                address
                for address in listed
                if address is not None and address not in self._records.get(address.content, {})
            ]
        for address, record in self._read(unread):
            self.note(address, record)
        self._complete = self._complete or content is None

    def labels_of(self, content: str) -> tuple[LabelRecord, ...]:
        """Return the records of a content that have been read, by annotator and number.

        The first call reads the labels of the whole suite.
        """
        if not self._complete:
            with self._listing:
                if not self._complete:
                    self.refresh()
        return self.content_records(content)

    def content_records(self, content: str) -> tuple[LabelRecord, ...]:
        """Return the records of a content that this process has read; nothing is read."""
        with self._lock:
            return tuple(record for _, record in sorted(self._records.get(content, {}).items()))

    def note(self, address: LabelAddress, record: LabelRecord) -> None:
        """Take a record that was read or written by this process."""
        with self._lock:
            self._records.setdefault(address.content, {})[address] = record

    def _read(
        self, addresses: Collection[LabelAddress]
    ) -> Iterable[tuple[LabelAddress, LabelRecord]]:
        if len(addresses) <= _FETCHERS:
            return list(map(self._read_object, addresses))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_FETCHERS) as fetchers:
            return list(fetchers.map(self._read_object, addresses))

    def _read_object(self, address: LabelAddress) -> tuple[LabelAddress, LabelRecord]:
        try:
            return address, decode_label(self._store.get(address.key).data, address)
        except (ValueError, ObjectNotFoundError) as error:
            damage = DamagedLabel(address.key, f"is no label: {error}")
        with self._lock:
            self._damaged[address.key] = damage
        # What it said is unknown, so the annotator is asked again.
        return address, LabelRecord(address.annotator, None, "", number=address.number)


def add_label(
    store: ObjectStore,
    suite: str,
    content: str,
    record: LabelRecord,
    book: LabelBook | None = None,
) -> LabelRecord:
    """Store a label after those that its annotator gave before; return it with its number.

    Safe in several processes at once: nothing is overwritten. A label that says the same as the
    annotator's last one (label and comment) is not stored again: that one is returned. Raises
    `UsageError` for a name that cannot be an annotator's.
    """
    book = LabelBook(store, suite) if book is None else book
    record = replace(record, annotator=check_annotator(record.annotator))
    annotator = record.annotator_key
    for _ in range(_ATTEMPTS):
        book.refresh(content)
        last = latest_by_annotator(book.content_records(content)).get(annotator)
        if last is None and record.label is None:
            return replace(record, number=0)
        if last is not None and last.at and _says_the_same(last, record):
            return last
        number = 1 if last is None else last.number + 1
        address = LabelAddress(suite_key(suite), content, annotator, number)
        numbered = replace(record, number=number)
        if store.put_if_absent(address.key, encode_label(numbered)) is not None:
            book.note(address, numbered)
            return numbered
    raise RunConflictError(f"the labels of {record.annotator} on {content} change all the time")


def _says_the_same(last: LabelRecord, record: LabelRecord) -> bool:
    return last.label == record.label and (last.comment or "") == (record.comment or "")
