"""What a report notes under its figures: missing labels and prices, agreement of annotators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from evalcore.mistakes.wording import counted
from evalcore.model.exchange import cut_of
from evalcore.model.summary import Summary
from evalcore.report.document import Report


def note_lines(report: Report) -> Iterator[str]:
    """Yield lines of plain text."""
    if report.run.part:
        yield f"partial run ({'; '.join(report.run.part)}): it cannot be a baseline"
    awaited = report.summary.awaiting
    if awaited is not None:
        items = "1 item" if awaited.items == 1 else f"{awaited.items} items"
        yield f"{awaited.message} for {items}: evalcore annotate {report.run.id}"
    for agreement in report.summary.agreement:
        yield agreement.message
    yield from summary_notes(report.summary)


def summary_notes(summary: Summary) -> Iterator[str]:
    """Yield what every form of a report notes: answers that were cut, models without a price."""
    cuts: Counter[str] = Counter()
    for reason, count in summary.cut.items():
        cuts[str(cut_of(reason))] += count
    for how, count in cuts.items():
        yield f"{counted(count, 'answer')} {'was' if count == 1 else 'were'} cut {how}"
    if summary.unpriced:
        names = ", ".join(f"'{name}'" for name in summary.unpriced)
        noun = "model" if len(summary.unpriced) == 1 else "models"
        yield (
            f"no price is known for {noun} {names}, so costs are missing; "
            f'give it in evalcore.toml: [prices."{summary.unpriced[0]}"]'
        )
