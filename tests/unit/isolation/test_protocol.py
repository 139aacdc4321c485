"""Frames between the engine and its workers: whole, bounded, errors in JSON."""

from __future__ import annotations

import io
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.isolation.protocol import (
    LONGEST_FRAME,
    FrameError,
    decode_error,
    encode_error,
    frame,
    read_frame,
    read_json,
)
from evalcore.model.exchange import ProviderError, SkippedError


def test_a_stream_gives_its_bodies_and_none_for_one_that_is_cut_off() -> None:
    bodies = [b"", b"a", b"[1,2]", b"x" * 300]
    stream = io.BytesIO(b"".join(map(frame, bodies))[:-1])
    assert [read_frame(stream) for _ in bodies] == [*bodies[:-1], None]


def test_a_body_that_is_too_long_is_refused_on_both_sides() -> None:
    with pytest.raises(FrameError, match="the limit is 64 MiB"):
        frame(bytes(LONGEST_FRAME + 1))
    head = (LONGEST_FRAME + 1).to_bytes(4, "big")
    with pytest.raises(FrameError, match="a frame of 67,108,865 bytes"):
        read_frame(io.BytesIO(head))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": 1}', b'["done"]', b"[" * 100_000])
def test_what_is_no_list_of_values_is_no_frame_of_a_worker(body: bytes) -> None:
    with pytest.raises(FrameError, match="no "):
        read_json(body)


@pytest.mark.parametrize(
    "error",
    [
        TargetError("timeout", "no answer"),
        SkippedError("condition", "not asked"),
        ProviderError("http", "it failed", 503, attempts=4),
        ProviderError("connection", "it failed", None, attempts=1),
    ],
)
def test_an_error_crosses_over_with_its_class_and_its_values(error: TargetError) -> None:
    decoded = decode_error(encode_error(error))
    assert type(decoded) is type(error)
    assert (decoded.kind, decoded.message) == (error.kind, error.message)
    for name in ("status", "attempts"):
        assert getattr(decoded, name, None) == getattr(error, name, None)


@pytest.mark.parametrize("raw", [None, "text", [1]])
def test_what_is_no_error_is_one_of_the_process(raw: Any) -> None:
    assert decode_error(raw).kind == "process"


def test_numbers_of_an_error_that_are_none_are_left_out() -> None:
    raw = {"type": "provider", "kind": "http", "message": "m", "status": "503", "attempts": []}
    error = decode_error(raw)
    assert isinstance(error, ProviderError)
    assert (error.status, error.attempts) == (None, 1)
