"""What a report says of quarantined cases, as lines of plain text."""

from __future__ import annotations

from collections.abc import Iterator

from evalcore.mistakes.wording import counted
from evalcore.model.quarantine import Quarantine, QuarantineEntry

_LISTED = 10


def quarantine_lines(quarantine: Quarantine) -> Iterator[str]:
    """Yield a line for each quarantined case, the expired entries first; of each ten."""
    for entry in quarantine.expired[:_LISTED]:
        yield f"{_named(entry)} gates again: its quarantine ended on {entry.until}"
    if more := len(quarantine.expired) - _LISTED:
        yield from _rest(more, "expired")
    for entry in quarantine.active[:_LISTED]:
        reason = f": {entry.reason}" if entry.reason else ""
        yield f"{_named(entry)} does not gate until {entry.until}{reason}"
    if more := len(quarantine.active) - _LISTED:
        yield from _rest(more, "quarantined")


def quarantine_mark(quarantine: Quarantine, case: str) -> str:
    """Return what stands behind the outcome of a quarantined case; nothing for any other."""
    entry = quarantine.entry_of(case)
    return "" if entry is None else f", quarantined until {entry.until} ({entry.owner})"


def _named(entry: QuarantineEntry) -> str:
    return f"quarantine: {entry.case} ({entry.owner})"


def _rest(more: int, kind: str) -> Iterator[str]:
    if more > 0:
        yield f"quarantine: and {counted(more, f'more {kind} case')}"
