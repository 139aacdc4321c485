"""Drive a coroutine that waits for nothing, without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_inline(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends; raise `RuntimeError` if it does."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine suspended that is declared not to wait")
