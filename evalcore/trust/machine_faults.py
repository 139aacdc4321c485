"""Faults of the machine under an item: no room for files on their way, no process to be had.

They are no results (docs/decisions/0137-faults-of-the-machine.md): they are waited out, and if they
last they stop the run.
"""

from __future__ import annotations

import errno
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TypeVar

from evalcore.errors import StoreError

T = TypeVar("T")

# No space, no quota, a file larger than the process may write, a broken disk.
DISK_FAULTS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# Too many processes, no memory for one, too many open files.
_PROCESS_FAULTS: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_RETRIES_S: Final = (0.5, 2.0, 5.0)

Noting = Callable[[], AbstractContextManager[None]]
# What is entered around an action of the item that is being executed.
_NOTING: Final[ContextVar[Noting]] = ContextVar("noting of machine faults", default=nullcontext)


@contextmanager
def faults_noted_by(noting: Noting) -> Iterator[None]:
    """Enter `noting()` around each action that may meet such a fault, as long as the context.

    Checks and engines turn what they meet into results of their own, so the fault is noted.
    """
    token = _NOTING.set(noting)
    try:
        yield
    finally:
        _NOTING.reset(token)


def noting_faults() -> AbstractContextManager[None]:
    """Return the context in which the item's `StoreError` is noted."""
    return _NOTING.get()()


def _is_of_store(error: Exception) -> bool:
    return isinstance(error, StoreError)


# A library is no shorter: with tenacity both functions are as long (callers give their waits), and
# its import takes 35 ms; stamina logs by hooks of the whole process.
def retried(
    action: Callable[[], T],
    waits_s: Iterable[float],
    may_pass: Callable[[Exception], bool] = _is_of_store,
) -> T:
    """Return what the action returns, tried again after each wait while what it raises may pass.

    What the last attempt raises, or what cannot pass, is raised.
    """
    for wait_s in waits_s:
        try:
            return action()
        except Exception as error:  # what cannot pass is raised again
            if not may_pass(error):
                raise
        time.sleep(wait_s)
    return action()


async def waited_out(action: Callable[[], Awaitable[T]]) -> T:
    """Return what an action of the item returns; a fault of the machine is waited out."""
    import asyncio

    with noting_faults():
        for wait_s in _RETRIES_S:
            with suppress(StoreError):
                return await action()
            await asyncio.sleep(wait_s)
        return await action()


@contextmanager
def told_as_fault(subject: str, remedy: str) -> Iterator[None]:
    """Raise `StoreError` for an error of the disk or of starting a process in the context."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FAULTS | _PROCESS_FAULTS:
            raise
        raise StoreError(f"{subject}: {error.strerror or error} ({remedy})") from error


def unwritable(error: OSError) -> StoreError:
    """Return what is told where nothing can be written below TMPDIR."""
    try:
        where = f" below {tempfile.gettempdir()}"
    except OSError:  # its message names the folders that were tried
        where = ""
    reason = error.strerror or str(error)
    return StoreError(f"cannot write{where}: {reason} (TMPDIR chooses another folder)")


@contextmanager
def temporary_folder(prefix: str = "evalcore-") -> Iterator[Path]:
    """Give a folder for as long as the context; a full disk there costs no result.

    Raises `StoreError` if it cannot be made, or written into.
    """
    try:
        directory = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise unwritable(error) from error
    with directory as folder:
        try:
            yield Path(folder)
        except OSError as error:
            # A file's own writes do not name it.
            own = error.filename is None and error.errno in DISK_FAULTS
            if isinstance(error.filename, str):
                own = Path(error.filename).is_relative_to(folder)
            if not own:
                raise
            raise unwritable(error) from error
