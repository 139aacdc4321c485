"""Threads for what blocks for long: not those of the pool that requests need."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns that is called in a thread of its own."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def call() -> None:
        try:
            value = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            loop.call_soon_threadsafe(_fail, future, error)
        else:
            loop.call_soon_threadsafe(_succeed, future, value)

    threading.Thread(target=call, name=function.__name__, daemon=True).start()
    return await future


def _succeed(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
