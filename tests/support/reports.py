"""The part of a report that must not differ between two runs of the same plan."""

from __future__ import annotations

import re

# The run's id and how it went, and what was measured.
_OF_THE_SINGLE_RUN = re.compile(
    rb'"(id"\s*:\s*"\d{8}T\d{6}Z-[0-9a-f]{6}'
    rb"|(?:(?:started|ended)_at|duration_s|reexecuted|(?:\w+_)?latency_ms|ttft_ms)"
    rb'"\s*:\s*(?:\{[^{}]*\}|[^,}\]]*))'
)


def stable_report(text: str) -> bytes:
    """Return a report's bytes, but for its run's id, times and items executed again."""
    return re.sub(rb"\r?\n", b"", _OF_THE_SINGLE_RUN.sub(b"", text.encode()))
