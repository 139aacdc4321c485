"""What a report says of labels of people that are missing."""

from __future__ import annotations

from collections.abc import Iterator

from evalcore.report.document import Report


def awaiting_lines(report: Report) -> Iterator[str]:
    """Yield a line of plain text if labels are missing: how many, and the command that asks."""
    awaited = report.summary.awaiting
    if awaited is not None:
        items = "1 item" if awaited.items == 1 else f"{awaited.items} items"
        yield f"{awaited.message} for {items}: evalcore annotate {report.run.id}"
