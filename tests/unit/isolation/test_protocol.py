"""Errors in messages of worker processes."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.isolation.protocol import decode_error, encode_error
from evalcore.model.exchange import ProviderError, SkippedError


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


@pytest.mark.parametrize("raw", [None, "text", [1], ["TargetError", 1, "m"], {"kind": "http"}])
def test_what_is_no_error_is_one_of_the_process(raw: Any) -> None:
    assert decode_error(raw).kind == "process"
