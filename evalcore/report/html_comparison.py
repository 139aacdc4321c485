"""The comparison of two runs as one HTML file, with the components of the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalcore.model.comparison import VariantComparison
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
    differences = list(_differences(view))
    yield from page_pieces(
        view,
        against=earlier.run.id,
        notes=notes,
        # The figures of one variant stand side by side, those of several are a table.
        figures=differences[0]["figures"] if len(differences) == 1 else (),
        differences=differences if len(differences) > 1 else (),
        causes=(),
    )


def _differences(view: ComparedView) -> Iterator[dict[str, Any]]:
    """Yield the figures of each variant; a figure that it does not have is a dash."""
    report = view.report
    entries = comparison_entries(report.summary.comparison)
    per_variant = [
        (candidate.variant, list(_figures(candidate, entry)))
        for candidate, entry in zip(compared(report), entries, strict=True)
    ]
    names = dict.fromkeys(each["name"] for _, figures in per_variant for each in figures)
    for variant, figures in per_variant:
        own = {each["name"]: each for each in figures}
        filled = [own.get(name) or figure(name, "–") for name in names]
        yield {"variant": variant, "figures": filled}


def _figures(candidate: VariantComparison, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield figure("Cases in both", f"{candidate.compared:,}")
    score, passed = entry["score"], entry["passed"]
    if score["difference"] is not None:
        interval = ""
        if score["low"] is not None:
            interval = f"95 %: {score['low']:+.4f} to {score['high']:+.4f}"
        yield figure("Score difference", f"{score['difference']:+.4f}", interval)
    if passed["p"] is not None:
        tone = "failed" if candidate.worse else ""
        yield figure("Passed before only", f"{candidate.worse:,}", tone=tone)
        tone = "passed" if candidate.better else ""
        p = f"p = {passed['p']:.4f}"
        yield figure("Passed now only", f"{candidate.better:,}", p, tone)
