"""The comparison of two runs as one HTML file, with the components of the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalcore.report.changes import compared
from evalcore.report.compared_view import ComparedView
from evalcore.report.comparison import comparison_entries
from evalcore.report.html import figure, page_pieces


def render_comparison(view: ComparedView) -> Iterator[str]:
    """Yield the page in pieces."""
    earlier = view.baseline.report
    notes = []
    if earlier.suite != view.report.suite:
        notes.append(f"the baseline is of another suite, {earlier.suite}")
    yield from page_pieces(
        view,
        against=earlier.run.id,
        notes=notes,
        figures=list(_figures(view)),
        causes=(),
    )


def _figures(view: ComparedView) -> Iterator[dict[str, Any]]:
    report = view.report
    entries = comparison_entries(report.summary.comparison)
    for candidate, entry in zip(compared(report), entries, strict=True):
        of = f" of {candidate.variant}" if len(entries) > 1 else ""
        yield figure(f"Cases in both{of}", f"{candidate.compared:,}")
        score, passed = entry["score"], entry["passed"]
        if score["difference"] is not None:
            interval = ""
            if score["low"] is not None:
                interval = f"95 %: {score['low']:+.4f} to {score['high']:+.4f}"
            yield figure(f"Score difference{of}", f"{score['difference']:+.4f}", interval)
        if passed["p"] is not None:
            p = f"p = {passed['p']:.4f}"
            tone = "failed" if candidate.worse else ""
            yield figure(f"Passed before only{of}", f"{candidate.worse:,}", tone=tone)
            tone = "passed" if candidate.better else ""
            yield figure(f"Passes now only{of}", f"{candidate.better:,}", p, tone)
