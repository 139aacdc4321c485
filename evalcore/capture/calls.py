"""A captured call on its way from the caller to the thread that writes, and that thread's pace."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from evalcore.storage.store import ObjectStore

WRITTEN: Final = "written"
"""What captures that stand in the store are counted as."""
LARGEST_CAPTURE_BYTES: Final = 256 * 1024
# The thread works for a fifth of the time at the most, about half a millisecond at once.
_REST_FACTOR: Final = 4.0
_WORK_S: Final = 0.000_5


class CaptureSource(NamedTuple):
    """Where captures come from and where they go: the same for all calls of a function.

    `names` are those of its positional parameters. `has_owner` says that the first of them is the
    object of a method, and no input.
    """

    dataset: str
    store: str | ObjectStore | None
    redact: tuple[Any, ...]
    function: str = ""
    names: tuple[str, ...] = ()
    has_owner: bool = False


class CaptureCall(NamedTuple):
    """One captured call, as the caller left it: JSON lists, nothing redacted yet.

    With `has_arguments` the input is the arguments, without the object of a method, and at last the
    keywords; else it is one value. `error` is the type's name of an exception, whose arguments are
    the output; `is_stream` says that the output is what a generator yielded.
    """

    source: CaptureSource
    moment: float
    input: bytes
    has_arguments: bool
    output: bytes
    error: str | None
    is_stream: bool
    is_complete: bool
    metadata: bytes

    @property
    def size(self) -> int:
        """How many bytes the call keeps from being freed."""
        return len(self.input) + len(self.output) + len(self.metadata)


class Pace:
    """Work in short pieces: `with pace:` around it, `pace.rest()` wherever it can be interrupted.

    `hurry` ends every rest while it is set. Nothing is locked during a rest: `lock`, which is held
    during the work, is for others to know that no work is under way, such as a fork.
    """

    def __init__(self, hurry: threading.Event) -> None:
        self.lock = threading.Lock()
        self._hurry = hurry
        self._resumed_s = 0.0

    def __enter__(self) -> None:
        """Begin to work."""
        self.lock.acquire()
        self._resumed_s = time.thread_time()

    def __exit__(self, *_exception: object) -> None:
        """Stop working, and rest for it."""
        worked_s = time.thread_time() - self._resumed_s
        self.lock.release()
        self._hurry.wait(_REST_FACTOR * worked_s)

    def rest(self) -> None:
        """Rest if enough was done since the last rest; called while working."""
        if time.thread_time() - self._resumed_s < _WORK_S:
            return
        self.__exit__()
        self.__enter__()
