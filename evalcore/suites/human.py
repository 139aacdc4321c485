"""`human`: an assertion that people answer, for suites in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def human(
    question: str,
    *,
    labels: Sequence[str] | None = None,
    expected: str | None = None,
    scale: Sequence[int] | None = None,
    min_score: float | None = None,
    annotators: int = 1,
    required: bool | float = False,
    **more: Any,
) -> dict[str, Any]:
    """Return the assertion as a suite file would write it; `define_suite` finds its mistakes.

    Either `labels` with the one that is `expected`, or a `scale` with the least mean that passes.
    `more` are `instructions`, `name`, `weight`, `metric`, `path` (docs/reference/annotations.md).
    """
    written: dict[str, Any] = {"type": "human", "question": question, "annotators": annotators}
    if required is not False:
        written["required"] = required
    optional = {
        "labels": None if labels is None else list(labels),
        "expected": expected,
        "scale": None if scale is None else list(scale),
        "min_score": min_score,
        **more,
    }
    return written | {key: value for key, value in optional.items() if value is not None}
