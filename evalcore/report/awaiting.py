"""What a report says of labels of people: how many are missing, and how well annotators agree."""

from __future__ import annotations

from collections.abc import Iterator

from evalcore.report.document import Report


def awaiting_lines(report: Report) -> Iterator[str]:
    """Yield lines of plain text: how many labels are missing, the agreement on each question."""
    awaited = report.summary.awaiting
    if awaited is not None:
        items = "1 item" if awaited.items == 1 else f"{awaited.items} items"
        yield f"{awaited.message} for {items}: evalcore annotate {report.run.id}"
    for agreement in report.summary.agreement:
        yield agreement.message
