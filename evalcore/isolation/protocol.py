"""What the engine and its child processes say to each other, over which pipes, and how they end.

The engine sends pickles, one after another: what it sends is its own. A worker sends lines of JSON,
because the engine must not run code that a worker chooses.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import IO, Any, Final

from evalcore.errors import TargetError
from evalcore.model.exchange import ProviderError, SkippedError

# As much as an answer of a provider may hold.
LONGEST_LINE: Final = 64 << 20


class Kind:
    """What a message is: those of a worker process about a job, then those of the engine."""

    LOADED: Final = "loaded"
    ASK: Final = "ask"
    DONE: Final = "done"
    FAILED: Final = "failed"
    BROKEN: Final = "broken"
    JOB: Final = "job"
    REPLY: Final = "reply"
    CANCEL: Final = "cancel"


class MessageError(ValueError):
    """What arrived is no message, or one that is too long."""


def read_message(line: bytes) -> list[Any]:
    """Return the values of a worker's line; raise `MessageError`."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"no JSON ({error})") from None
    if not isinstance(values, list) or len(values) < 2:
        raise MessageError("no list of values")
    return values


def encode_error(error: TargetError) -> dict[str, Any]:
    """Return an error of a target as JSON values."""
    raw: dict[str, Any] = {"kind": str(error.kind), "message": str(error.message)}
    if isinstance(error, SkippedError):
        raw["type"] = "skipped"
    elif isinstance(error, ProviderError):
        raw["type"] = "provider"
        raw |= {"status": error.status, "attempts": error.attempts}
    return raw


def decode_error(raw: Any) -> TargetError:
    """Return the error that `encode_error` wrote; anything else is an error of kind `process`."""
    if not isinstance(raw, dict):
        return TargetError("process", "its worker process sent no error that can be read")
    kind, message = str(raw.get("kind")), str(raw.get("message"))
    if raw.get("type") == "skipped":
        return SkippedError(kind, message)
    if raw.get("type") == "provider":
        status, attempts = raw.get("status"), raw.get("attempts")
        status = status if isinstance(status, int) else None
        attempts = attempts if isinstance(attempts, int) else 1
        return ProviderError(kind, message, status, attempts=attempts)
    return TargetError(kind, message)


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
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
