"""Values that are costly to open, kept for the next page: few, each opened once at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from evalcore.errors import EvalError

LARGE_ITEMS: Final = 20_000
"""Tables of more work items than these are opened beside a page; it would wait too long."""
_PATIENCE_S: Final = 0.2
_OPENING_LOCKS: Final = 16

Value = TypeVar("Value")


class PreparingError(EvalError):
    """What a page needs is being prepared: it can be asked for again in a moment."""


def beside(work: Callable[[], Value], name: str) -> Future[Value]:
    """Do work in a thread of its own, which the process does not wait for at its end."""
    done: Future[Value] = Future()

    def complete() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            done.set_exception(error)

    threading.Thread(target=complete, name=name, daemon=True).start()
    return done


@dataclass(eq=False)
class _Entry(Generic[Value]):
    value: Value
    version: Hashable
    size: int
    lock: threading.RLock = field(default_factory=threading.RLock)
    is_closed: bool = False


class Shelf(Generic[Value]):
    """The values used last, at most `most` and of at most `most_size` together; safe in threads.

    A value that makes room is closed as soon as no page uses it.
    """

    def __init__(
        self,
        most: int,
        *,
        most_size: int | None = None,
        close: Callable[[Value], object] | None = None,
    ) -> None:
        self._most, self._most_size, self._close_value = most, most_size, close
        self._entries: OrderedDict[Hashable, _Entry[Value]] = OrderedDict()
        self._opening = tuple(threading.Lock() for _ in range(_OPENING_LOCKS))
        self._preparing: dict[Hashable, Future[_Entry[Value]]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, open_value: Callable[[], Value]) -> Value:
        """Return the value of a key; who asks while it is opened waits for it."""
        return self._current(key, open_value, None, 0).value

    @contextmanager
    def use(
        self,
        key: Hashable,
        open_value: Callable[[], Value],
        *,
        version: Hashable = None,
        size: int = 0,
        subject: str | None = None,
    ) -> Iterator[Value]:
        """Give the value of a key for as long as the context lasts; others wait for it.

        It is opened anew if its version differs. With a `subject` it is opened beside the page the
        first time: raises `PreparingError`, which names it, if that takes more than 0.2 s.
        """
        while True:
            if subject is None or key in self._entries:
                entry = self._current(key, open_value, version, size)
            else:
                entry = self._prepared(key, open_value, version, size, subject)
            with entry.lock:
                # Another value may have taken its place in between.
                if not entry.is_closed:
                    yield entry.value
                    return

    def close(self) -> None:
        """Close all values."""
        with self._lock:
            entries, self._entries = list(self._entries.values()), OrderedDict()
        for entry in entries:
            self._close(entry)

    def _prepared(
        self,
        key: Hashable,
        open_value: Callable[[], Value],
        version: Hashable,
        size: int,
        subject: str,
    ) -> _Entry[Value]:
        with self._lock:
            preparing = self._preparing.get(key)
            if preparing is None:
                preparing = self._preparing[key] = beside(
                    lambda: self._current(key, open_value, version, size), "viewer-preparation"
                )
        if not wait([preparing], _PATIENCE_S).done:
            raise PreparingError(subject)
        with self._lock:
            if self._preparing.get(key) is preparing:
                del self._preparing[key]
        return preparing.result()

    def _current(
        self, key: Hashable, open_value: Callable[[], Value], version: Hashable, size: int
    ) -> _Entry[Value]:
        with self._opening[hash(key) % _OPENING_LOCKS]:
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None and entry.version == version:
                    self._entries.move_to_end(key)
                    return entry
                closed = [] if entry is None else [self._entries.pop(key)]
                while self._entries and self._is_full(size):
                    closed.append(self._entries.popitem(last=False)[1])
            for each in closed:
                self._close(each)
            entry = _Entry(open_value(), version, size)
            with self._lock:
                self._entries[key] = entry
            return entry

    def _is_full(self, size: int) -> bool:
        sizes = sum(entry.size for entry in self._entries.values()) + size
        is_too_large = self._most_size is not None and sizes > self._most_size
        return len(self._entries) >= self._most or is_too_large

    def _close(self, entry: _Entry[Value]) -> None:
        with entry.lock:
            entry.is_closed = True
            if self._close_value is not None:
                self._close_value(entry.value)
