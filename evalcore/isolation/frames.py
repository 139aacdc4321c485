"""What the engine and its worker processes say to each other, and how errors cross over.

A frame is its length in four bytes and its body. The engine sends pickles: what it sends is its
own. A worker sends JSON, because the engine must not run code that a worker chooses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from evalcore.errors import TargetError
from evalcore.model.exchange import ProviderError, SkippedError

# As much as an answer of a provider may hold.
LONGEST_FRAME: Final = 64 << 20
_HEAD: Final = 4

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
END: Final = "end"


class FrameError(ValueError):
    """What arrived is no frame, or one that is too long."""


def frame(body: bytes) -> bytes:
    """Return the frame of a body; raise `FrameError` for one that is too long."""
    if len(body) > LONGEST_FRAME:
        raise FrameError(f"{len(body):,} bytes; the limit is {LONGEST_FRAME >> 20} MiB")
    return len(body).to_bytes(_HEAD, "big") + body


class FrameReader:
    """Cuts a stream of bytes into the bodies of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes; yield the bodies that are complete. Raises `FrameError`."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEAD:
            length = int.from_bytes(buffer[:_HEAD], "big")
            if length > LONGEST_FRAME:
                raise FrameError(f"a frame of {length:,} bytes")
            if len(buffer) < _HEAD + length:
                return
            body = bytes(buffer[_HEAD : _HEAD + length])
            del buffer[: _HEAD + length]
            yield body


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
