"""What the engine and its child processes say to each other, over which pipes, and how they end.

A frame is its length in four bytes and its body. The engine sends pickles: what it sends is its
own. A worker sends JSON, because the engine must not run code that a worker chooses.
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
LONGEST_FRAME: Final = 64 << 20
HEAD_BYTES: Final = 4

# What a worker process says of a job.
LOADED: Final = "loaded"
ASK: Final = "ask"
DONE: Final = "done"
FAILED: Final = "failed"
BROKEN: Final = "broken"
# What the engine says to a worker process.
JOB: Final = "job"
REPLY: Final = "reply"
CANCEL: Final = "cancel"


class FrameError(ValueError):
    """What arrived is no frame, or one that is too long."""


def frame(body: bytes) -> bytes:
    """Return the frame of a body; raise `FrameError` for one that is too long."""
    if len(body) > LONGEST_FRAME:
        raise FrameError(f"{len(body):,} bytes; the limit is {LONGEST_FRAME >> 20} MiB")
    return len(body).to_bytes(HEAD_BYTES, "big") + body


def frame_length(head: bytes) -> int:
    """Return the length of the body that follows; raise `FrameError` for one that is too long."""
    length = int.from_bytes(head, "big")
    if length > LONGEST_FRAME:
        raise FrameError(f"a frame of {length:,} bytes")
    return length


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next body of a stream; None at its end."""
    head = stream.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    length = frame_length(head)
    body = stream.read(length)
    return body if len(body) == length else None


def read_json(body: bytes) -> list[Any]:
    """Return the values of a worker's frame; raise `FrameError`."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"no JSON ({error})") from None
    if not isinstance(values, list) or len(values) < 2:
        raise FrameError("no list of values")
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
    heard, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
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
