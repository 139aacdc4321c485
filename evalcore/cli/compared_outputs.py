"""Both outputs of the cases that passed in one of two compared runs only, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evalcore.cli.showing import one_line, present
from evalcore.model.summary import Difference, DifferenceKind
from evalcore.pipeline.compare import ComparedRuns
from evalcore.pipeline.finish import view_run
from evalcore.report.comparison import ComparedView, baseline_name
from evalcore.report.view import shown_text
from evalcore.storage.runs import StoredRun
from evalcore.wording import shorten

_MOST_CHARACTERS = 1_000

Outputs = Mapping[tuple[str, str], tuple[str | None, str | None]]
"""By variant and case: the baseline's output and the candidate's, of the first iteration."""


def compared_outputs(runs: ComparedRuns, baseline: StoredRun, candidate: StoredRun) -> Outputs:
    """Return the outputs of the cases that passed in one of the runs only."""
    baselines = {
        (each.variant, difference.case): baseline_name(each)
        for each in runs.comparison.variants
        for difference in (*each.regressions, *each.improvements)
        if difference.kind is DifferenceKind.ASSERTION
    }
    if not baselines:
        return {}
    names = {case for _, case in baselines}
    outputs: dict[tuple[str, str], str | None] = {}
    with view_run(baseline) as earlier, view_run(candidate) as later:
        view = ComparedView(present(earlier), present(later), runs.summary, runs.gate)
        for case in view.listed():
            if case.record["id"] in names:
                key = (case.record["variant"], case.record["id"])
                outputs[key] = shown_text(case.record["items"][0]["output"])
    return {
        (variant, case): (outputs.get((named, case)), outputs.get((variant, case)))
        for (variant, case), named in baselines.items()
    }


def output_lines(outputs: Outputs, difference: Difference) -> Iterator[str]:
    """Yield both outputs of a case, a line each; none where they are not known."""
    if difference.kind is not DifferenceKind.ASSERTION:
        return
    both = outputs.get((difference.variant, difference.case), (None, None))
    for title, output in zip(("before", "now   "), both, strict=True):
        if output is not None:
            yield f"{title}  {one_line(shorten(output, _MOST_CHARACTERS))}"
