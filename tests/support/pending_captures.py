"""Captures that wait in a store, written by the real writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.capture import flush_captures
from evalcore.capture.decorator import capture
from evalcore.storage.store import ObjectStore


def write_captures(
    store: ObjectStore, outputs: Mapping[str, Any], dataset: str = "support"
) -> None:
    """Capture each input with its output."""
    for question, output in outputs.items():
        capture(dataset, input=question, output=output, store=store)
    assert flush_captures(30)
