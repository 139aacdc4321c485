"""What the engine and its child processes say to each other, over which pipes, and how they end.

The engine sends pickles, one after another: what it sends is its own. A worker sends lines of JSON,
because the engine must not run code that a worker chooses.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import IO, Any, Final

from evalcore.errors import TargetError
from evalcore.model.exchange import ProviderError, SkippedError

# As much as an answer of a provider may hold.
LONGEST_LINE: Final = 64 << 20


def encode_error(error: TargetError) -> list[Any]:
    """Return an error of a target as JSON values."""
    raw = [type(error).__name__, str(error.kind), str(error.message)]
    return [*raw, error.status, error.attempts] if isinstance(error, ProviderError) else raw


def decode_error(raw: object) -> TargetError:
    """Return the error that `encode_error` wrote; anything else is an error of kind `process`."""
    match raw:
        case ["SkippedError", str(kind), str(message)]:
            return SkippedError(kind, message)
        case [_, str(kind), str(message), int() | None as status, int(attempts)]:
            return ProviderError(kind, message, status, attempts=attempts)
        case [_, str(kind), str(message)]:
            return TargetError(kind, message)
    return TargetError("process", "its worker process sent no error that can be read")


def take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return what the parent says and where the answers go, in a child started with two pipes.

    Afterwards standard input is empty and standard output is standard error: what foreign code
    prints, or what its programs print, is no answer.
    """
    heard, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return heard, answers


def kill_group(group: int) -> None:
    """Kill a process group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def ended_how(code: int) -> str:
    """Return how a process ended, in words: an exit code, or a signal for a negative one."""
    name = next((f" ({each.name})" for each in signal.Signals if each == -code), "")
    return f"exit code {code}" if code >= 0 else f"signal {-code}{name}"
