"""What large pages need before they can be shown: prepared beside them, while they say so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from evalcore.errors import EvalError

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
