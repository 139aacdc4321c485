"""Calls of foreign functions, which can neither block nor end the run."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sysconfig
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final, TypeVar

from evalcore.trust.foreign_loop import ForeignLoops, Returned

T = TypeVar("T")
_LONGEST_TEXT: Final = 4_000


class ForeignError(Exception):
    """A foreign function raised `__cause__`; the text describes it on one line."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an instance with an async __call__
    )


async def call_foreign(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return what the function returns, awaited if need be; raise `ForeignError` if it raises.

    An async function runs in the event loop of a thread for such functions, any other in a daemon
    thread of its own. When the caller's time limit cancels the call, an async function is
    cancelled, and left alone if it does not obey; a sync one cannot be stopped, and its result is
    dropped. Every exception is a `ForeignError`, `SystemExit` and a cancellation of its own
    included.
    """
    if is_async(function):
        returned = await _foreign_loops().call(lambda: function(*arguments, **keywords))
    else:
        returned = await _in_thread(lambda: function(*arguments, **keywords))
        if returned.error is None and inspect.isawaitable(returned.value):
            awaitable = returned.value
            returned = await _foreign_loops().call(lambda: awaitable)
    if isinstance(returned.error, ForeignError):
        raise returned.error
    if returned.error is not None:
        text = f"{text_of_error(returned.error)}{place_of_error(returned.error)}"
        raise ForeignError(text) from returned.error
    return returned.value


async def in_thread(call: Callable[[], T]) -> T:
    """Return what `call` returns, from a daemon thread of its own; what it raises comes through."""
    returned = await _in_thread(call)
    if returned.error is not None:
        raise returned.error
    value: T = returned.value
    return value


@lru_cache(maxsize=1)
def _foreign_loops() -> ForeignLoops:
    return ForeignLoops()


def has_foreign_tasks() -> bool:
    """Whether a coroutine runs in the loop for foreign ones, or a call stands in its schedule."""
    return _foreign_loops().has_tasks


def text_of_error(error: BaseException) -> str:
    """Return the type and the text of an exception on one line, even if its `__str__` raises."""
    try:
        message = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - a foreign __str__
        message = ""
    name = type(error).__name__
    if len(message) > _LONGEST_TEXT:
        message = f"{message[:_LONGEST_TEXT]}…"
    return f"{name}: {message}" if message else name


def place_of_error(error: BaseException) -> str:
    """Return ` (file.py:7)`: the innermost line outside of installed packages; else nothing.

    The file is named as its module is imported, so that the text is the same in every folder.
    """
    suffix = ""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_installed_file(code.co_filename):
            module = str(traceback.tb_frame.f_globals.get("__name__", ""))
            path = PurePath(code.co_filename)
            depth = module.count(".") + (2 if path.name == "__init__.py" else 1)
            suffix = f" ({'/'.join(path.parts[-depth:])}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return suffix


@lru_cache(maxsize=256)
def is_installed_file(file: str) -> bool:
    """Whether a file is Python's, a package's or evalcore's: none that a suite's author writes."""
    path = PurePath(file)
    folders = (*map(PurePath, sysconfig.get_paths().values()), PurePath(__file__).parents[1])
    return file.startswith("<") or any(path.is_relative_to(folder) for folder in folders)


async def _in_thread(call: Callable[[], Any]) -> Returned:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Returned] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(returned: Returned) -> None:
        if not future.done():
            future.set_result(returned)

    def run() -> None:
        try:
            returned = Returned(context.run(call), None)
        except BaseException as error:  # noqa: BLE001 - raised in the task that awaits
            returned = Returned(None, error)
        with suppress(RuntimeError):  # the loop has ended: no task waits
            loop.call_soon_threadsafe(deliver, returned)

    threading.Thread(target=run, name="evalcore-foreign", daemon=True).start()
    return await future
