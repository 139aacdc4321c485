"""An event loop whose time passes only while everything waits: no schedule takes real time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class HangError(Exception):
    """Everything waits, and nothing will ever happen."""


class _Selector(selectors.SelectSelector):
    """Lets time pass in place of waiting."""

    def __init__(self, passes: Callable[[float], None]) -> None:
        super().__init__()
        self._passes = passes

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise HangError("nothing is scheduled, and the run has not ended")
        self._passes(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in virtual seconds; a "thread" takes the next of `thread_s`, then returns."""

    def __init__(self, thread_s: Iterator[float]) -> None:
        self.now = 0.0
        self._thread_s = thread_s
        super().__init__(_Selector(self._pass))

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]  # in its place
        self, _: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def end() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001  (handed on, as an executor does)
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(next(self._thread_s), end)
        return future


def run_virtually(
    work: Callable[[VirtualLoop], Coroutine[Any, Any, T]], thread_s: Iterator[float]
) -> T:
    """Run a coroutine to its end in virtual time; raise `HangError` if it never comes."""
    loop = VirtualLoop(thread_s)
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()
