"""Messages of worker processes: lists of values, errors in JSON."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.isolation.protocol import (
    MessageError,
    decode_error,
    encode_error,
    read_message,
)
from evalcore.model.exchange import ProviderError, SkippedError


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": 1}', b'["done"]', b"[" * 100_000])
def test_what_is_no_list_of_values_is_no_message_of_a_worker(body: bytes) -> None:
    with pytest.raises(MessageError, match="no "):
        read_message(body)


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
