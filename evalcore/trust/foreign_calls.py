"""Somebody else's function, called where it can neither block nor end the run."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class ForeignError(Exception):
    """Somebody else's function raised; `__cause__` is what, the text says it on one line."""


class _Return(NamedTuple):
    value: Any
    error: BaseException | None


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an instance with an async __call__
    )


async def call_foreign(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return what the function returns, awaited if need be; raise `ForeignError` if it raises.

    An async function runs in the event loop, any other in a daemon thread of its own, which cannot
    be stopped: when the caller's time limit cancels it, its result is dropped.
    """
    with _told():
        if is_async(function):
            return await function(*arguments, **keywords)
        returned = await _in_thread(lambda: function(*arguments, **keywords))
        # Raised here, these would say that the caller is closed or cancelled.
        if isinstance(returned.error, GeneratorExit | asyncio.CancelledError):
            raise ForeignError(_text_of(returned.error)) from returned.error
        if returned.error is not None:
            raise returned.error
        if inspect.isawaitable(returned.value):
            return await returned.value
        return returned.value


async def in_thread(call: Callable[[], T]) -> T:
    """Return what `call` returns, from a daemon thread of its own; what it raises comes through."""
    returned = await _in_thread(call)
    if returned.error is not None:
        raise returned.error
    value: T = returned.value
    return value


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (ForeignError, asyncio.CancelledError, GeneratorExit):
        raise
    # `sys.exit()` or `pytest.fail()` in somebody's function must not end the run.
    except BaseException as error:
        raise ForeignError(_text_of(error)) from error


def _text_of(error: BaseException) -> str:
    try:
        message = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - somebody else's __str__
        message = ""
    name = type(error).__name__
    return f"{name}: {message}" if message else name


async def _in_thread(call: Callable[[], Any]) -> _Return:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Return] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(returned: _Return) -> None:
        if not future.done():
            future.set_result(returned)

    def run() -> None:
        try:
            returned = _Return(context.run(call), None)
        except BaseException as error:  # noqa: BLE001 - handed to whoever awaits
            returned = _Return(None, error)
        with suppress(RuntimeError):  # the loop has ended, nobody waits any more
            loop.call_soon_threadsafe(deliver, returned)

    threading.Thread(target=run, name="evalcore-foreign", daemon=True).start()
    return await future
