"""Values that are costly to make, kept for the next page: few, each made once at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from evalcore.errors import EvalError

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The values used last, at most `most`; safe in several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key; who asks while it is made waits for it."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                with self._lock:
                    if key in self._values:
                        self._values.move_to_end(key)
                        return self._values[key]
                value = make()
                with self._lock:
                    self._values[key] = value
                    while len(self._values) > self._most:
                        self._values.popitem(last=False)
                return value
        finally:
            with self._lock:
                self._making.pop(key, None)


LARGE_ITEMS: Final = 20_000
"""Tables of more work items than these are prepared beside a page; it would wait too long."""
_PATIENCE_S: Final = 0.2


class PreparingError(EvalError):
    """What a page needs is being prepared: it can be asked for again in a moment."""


@dataclass(eq=False)
class _Preparation:
    thread: threading.Thread
    error: EvalError | None = None


class Preparations:
    """Preparations that are under way, each by its key in one thread; several threads may ask."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Preparation] = {}
        self._lock = threading.Lock()

    def require(self, key: Hashable, subject: str, work: Callable[[], object]) -> None:
        """Do the work once for all who ask for it meanwhile, and return when it is done.

        Raises `PreparingError`, which names the subject, if that takes more than 0.2 s: the work
        goes on. Raises what the work raises.
        """
        with self._lock:
            preparation = self._under_way.get(key)
            if preparation is None:
                thread = threading.Thread(
                    target=self._work, args=(key, work), name="viewer-preparation", daemon=True
                )
                thread.start()
                preparation = self._under_way[key] = _Preparation(thread)
        preparation.thread.join(_PATIENCE_S)
        if preparation.thread.is_alive():
            raise PreparingError(subject)
        with self._lock:
            if self._under_way.get(key) is preparation:
                del self._under_way[key]
        if preparation.error is not None:
            raise preparation.error

    def _work(self, key: Hashable, work: Callable[[], object]) -> None:
        try:
            work()
        except EvalError as error:
            with self._lock:
                self._under_way[key].error = error
