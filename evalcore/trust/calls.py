"""Calls of foreign functions: what one raises, `sys.exit()` included, is its caller's error."""

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

T = TypeVar("T")
_LONGEST_TEXT: Final = 4_000


class ForeignError(Exception):
    """A foreign function raised `__cause__`; the text describes it on one line."""


async def call_foreign(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return what the function returns, awaited if need be; raise `ForeignError` if it raises.

    An async function runs in the caller's event loop, any other in a daemon thread of its own. When
    the caller's time limit cancels the call, an async function is cancelled; a sync one cannot be
    stopped, and its result is dropped. Every exception is a `ForeignError`, `SystemExit` and a
    cancellation of its own included.
    """
    task = asyncio.current_task()
    cancellations = 0 if task is None else task.cancelling()

    def called() -> Any:
        try:
            return function(*arguments, **keywords)
        except BaseException as error:  # here: `StopIteration` does not leave a coroutine as it is
            raise _foreign(error) from error

    try:
        if _is_async(function):
            return await function(*arguments, **keywords)
        value = await in_thread(called)
        return await value if inspect.isawaitable(value) else value
    except ForeignError:
        raise
    except BaseException as error:  # a foreign function's, `SystemExit` too
        is_cancelled = task is not None and task.cancelling() > cancellations
        if is_cancelled and isinstance(error, asyncio.CancelledError):
            raise  # by the caller
        raise _foreign(error) from error


def _foreign(error: BaseException) -> ForeignError:
    return ForeignError(f"{text_of_error(error)}{place_of_error(error)}")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an instance with an async __call__
    )


async def in_thread(call: Callable[[], T]) -> T:
    """Return what `call` returns, from a daemon thread of its own; what it raises comes through.

    Unlike `asyncio.to_thread` no pool bounds the calls, and none that hangs holds up the end.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: T | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, raised = None, None
        try:
            value = context.run(call)
        except BaseException as error:  # noqa: BLE001 - raised in the task that awaits
            raised = error
        with suppress(RuntimeError):  # the loop has ended: no task waits
            loop.call_soon_threadsafe(deliver, value, raised)

    threading.Thread(target=run, name="evalcore-foreign", daemon=True).start()
    returned, error = await ended
    if error is not None:
        raise error
    return returned  # type: ignore[return-value] # what `call` returned


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
