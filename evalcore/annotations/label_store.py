"""Labels in the store: immutable objects, none overwritten and none lost."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from evalcore.annotations.judging import latest_by_annotator
from evalcore.annotations.labels import (
    LabelAddress,
    LabelRecord,
    check_annotator,
    content_prefix,
    decode_label,
    encode_label,
    parse_label_key,
)
from evalcore.errors import ObjectNotFoundError, RunConflictError
from evalcore.model.annotation import AnswerForm
from evalcore.storage.layout import annotations_prefix, suite_key
from evalcore.storage.store import ObjectStore

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


def labels_of(store: ObjectStore, suite: str, content: str) -> tuple[LabelRecord, ...]:
    """Return the labels of a content, read now; the last one of each annotator.

    Withdrawn ones are left out. Ordered by annotator.
    """
    book = LabelBook(store, suite)
    book.refresh(content)
    latest = latest_by_annotator(book.content_records(content))
    return tuple(record for _, record in sorted(latest.items()) if record.label is not None)


def add_label(
    store: ObjectStore,
    suite: str,
    content: str,
    record: LabelRecord,
    book: LabelBook | None = None,
    form: AnswerForm | None = None,
) -> LabelRecord:
    """Store a label after those that its annotator gave before; return it with its number.

    Safe in several processes at once: nothing is overwritten. A label that says the same as the
    annotator's last one (label and comment; with a form, the last one that it has) is not stored
    again: that one is returned. Raises `UsageError` for a name that cannot be an annotator's.
    """
    book = LabelBook(store, suite) if book is None else book
    record = replace(record, annotator=check_annotator(record.annotator))
    annotator = record.annotator_key
    for _ in range(_ATTEMPTS):
        book.refresh(content)
        records = book.content_records(content)
        last = latest_by_annotator(records).get(annotator)
        if last is None and record.label is None:
            return replace(record, number=0)
        counted = latest_by_annotator(records, form).get(annotator)
        if counted is not None and counted.at and _says_the_same(counted, record):
            return counted
        number = 1 if last is None else last.number + 1
        address = LabelAddress(suite_key(suite), content, annotator, number)
        numbered = replace(record, number=number)
        if store.put_if_absent(address.key, encode_label(numbered)) is not None:
            book.note(address, numbered)
            return numbered
    raise RunConflictError(f"the labels of {record.annotator} on {content} change all the time")


def withdraw_label(
    store: ObjectStore,
    suite: str,
    content: str,
    annotator: str,
    *,
    at: str,
    book: LabelBook | None = None,
) -> LabelRecord:
    """Withdraw what an annotator said of a content: a new object, and none is deleted.

    Without a label there is nothing to withdraw: a record with the number 0 is returned.
    """
    return add_label(store, suite, content, LabelRecord(annotator, None, at), book)


def _says_the_same(last: LabelRecord, record: LabelRecord) -> bool:
    return last.label == record.label and (last.comment or "") == (record.comment or "")
