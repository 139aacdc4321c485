"""Several requests to a remote store at once, so that a run waits for one and not for each.

Threads are imported when there is something to wait for: a small run in a folder needs none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from evalcore.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
A = TypeVar("A")

_AT_ONCE = 16  # a client keeps 32 connections
_KINDS_AT_ONCE = 8


class Starts(Protocol):
    """Starts a request; what it returns gives the answer, or raises what the request raised."""

    def __call__(self, request: Callable[[], T], /) -> Callable[[], T]:
        """Return what waits for the answer."""


@contextmanager
def at_once(store: ObjectStore) -> Iterator[Starts]:
    """Give what starts requests that do not need each other's answers.

    Of a remote store they are under way at the same time; in a folder each is made when its answer
    is asked for. All have ended when the context ends.
    """
    if not store.is_remote:
        yield lambda request: request
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_KINDS_AT_ONCE, thread_name_prefix="request") as threads:
        yield lambda request: threads.submit(request).result


def transfer(store: ObjectStore, request: Callable[[A], T], arguments: Iterable[A]) -> Iterator[T]:
    """Yield what the request gives for each argument, in order.

    Of a remote store several are requested at once. The arguments are taken as requests end, so
    that a long iterable is never in memory as a whole. The first failure ends it.
    """
    if not store.is_remote:
        yield from map(request, arguments)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="transfer") as threads:
        waiting: deque[Future[T]] = deque()
        try:
            for argument in arguments:
                if len(waiting) == 2 * _AT_ONCE:
                    yield waiting.popleft().result()
                waiting.append(threads.submit(request, argument))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
