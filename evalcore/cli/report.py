"""`evalcore report` and `evalcore compare`: a completed run, alone and against an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from evalcore.cli.options import (
    RunName,
    chosen_store,
    export_option,
    json_option,
    run_argument,
    store_option,
    verbose_option,
)
from evalcore.cli.output import emit, export_view, present, print_terminal, say, write_pieces
from evalcore.errors import ExitCode, UsageError
from evalcore.model.run import GateOutcome
from evalcore.model.summary import VariantComparison
from evalcore.pipeline.compare import ComparedRuns, compare_runs
from evalcore.pipeline.finish import view_run
from evalcore.report.comparison import (
    CHANGE_MARKS,
    IMPROVEMENT,
    MISSING,
    REGRESSION,
    case_changes,
    variant_measures,
)
from evalcore.report.document import comparison_entries
from evalcore.report.registry import JSON, find_form
from evalcore.storage.run_names import choose_run, choose_two
from evalcore.storage.runs import partial_reasons
from evalcore.wording import counted

_MAX_LINES, _VERBOSE = 10, 200
_CODES: Final = {
    GateOutcome.PASS: ExitCode.PASS,
    GateOutcome.FAIL: ExitCode.GATE_FAILED,
    GateOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@click.command()
@run_argument
@click.option("--html", is_flag=True, help="Print one HTML page that needs nothing else.")
@click.option("--junit", is_flag=True, help="Print JUnit XML.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--github", is_flag=True, help="Print annotations of GitHub Actions.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the form to this file instead of standard output.",
)
@export_option
@store_option
@json_option
@verbose_option
def report(
    run_id: str,
    output: Path | None,
    store: str | None,
    as_json: bool,
    verbose: bool,
    exports: list[Path],
    **flags: bool,
) -> None:
    """Show the report of a completed run."""
    forms = [name for name, is_set in {**flags, JSON: as_json}.items() if is_set]
    if len(forms) > 1:
        raise UsageError(f"one form at a time: {', '.join(forms)}")
    if output is not None and not forms:
        raise UsageError("-o: say which form to write: --html, --junit, --markdown, …")
    with view_run(choose_run(chosen_store(store), run_id)) as view:
        export_view(view, exports)
        if not forms:
            print_terminal(view, verbose=verbose)
        elif as_json:
            write_pieces((view.json(newline=""),), output)
        else:
            write_pieces(find_form(forms[0])(present(view)), output)


@click.command()
@click.argument("baseline", metavar="RUN_A", type=RunName())
@click.argument("candidate", metavar="RUN_B", type=RunName())
@store_option
@json_option
@verbose_option
def compare(baseline: str, candidate: str, store: str | None, as_json: bool, verbose: bool) -> int:
    """Compare RUN_B with RUN_A, its baseline, case by case.

    The exit code is that of the gate no_regressions: 0 none, 1 there are some, 3 nothing could be
    compared or what differs may be chance.
    """
    runs = compare_runs(*choose_two(chosen_store(store), baseline, candidate))
    for manifest in (runs.baseline, runs.candidate):
        if reasons := partial_reasons(manifest):
            parts = "; ".join(reasons)
            say(f"warning: run {manifest.id} is of a part of its suite ({parts})", err=True)
    entries = comparison_entries(runs.comparison)
    values = {
        "baseline": {"run": runs.baseline.id, "suite": runs.baseline.suite},
        "candidate": {"run": runs.candidate.id, "suite": runs.candidate.suite},
        "outcome": runs.gate.outcome,
        "message": runs.gate.message,
        "regressions": runs.comparison.regression_count,
        "improvements": runs.comparison.improvement_count,
        "comparison": entries,
        "unavailable": list(runs.comparison.unavailable),
    }
    emit(values, as_json, _lines(runs, entries, _VERBOSE if verbose else _MAX_LINES))
    return int(_CODES[runs.gate.outcome])


def _lines(runs: ComparedRuns, entries: list[dict[str, Any]], most: int) -> Iterator[str]:
    yield f"{runs.candidate.id} against {runs.baseline.id} ({runs.candidate.suite})"
    if runs.baseline.suite != runs.candidate.suite:
        yield f"  the baseline is of another suite, {runs.baseline.suite}"
    for compared, entry in zip(runs.comparison.variants, entries, strict=True):
        yield from _variant_lines(compared, entry, most)
    for reason in runs.comparison.unavailable:
        yield f"  {reason}"
    yield f"{runs.gate.outcome.upper()}: {runs.gate.message}"


def _variant_lines(compared: VariantComparison, entry: dict[str, Any], most: int) -> Iterator[str]:
    was = "" if compared.variant == compared.baseline else f" (was {compared.baseline})"
    yield f"  {compared.variant}{was}: {counted(compared.compared, 'case')} in both"
    score, passed = entry["score"], entry["passed"]
    if score["difference"] is not None:
        interval = f"    score {score['difference']:+.4f}"
        if score["low"] is not None:
            interval += f" [{score['low']:+.4f}, {score['high']:+.4f}] ({score['method']})"
        yield interval
    if passed["p"] is not None:
        yield (
            f"    passed before only: {passed['worse']}, now only: {passed['better']} "
            f"(p = {passed['p']:.4f}, {passed['method']})"
        )
    for direction, title, cases, listed in (
        (REGRESSION, "regressed", compared.regressed_cases, compared.regressions),
        (IMPROVEMENT, "improved", compared.improved_cases, compared.improvements),
        (MISSING, "missing", compared.missing_count, compared.missing),
    ):
        if cases:
            yield f"    {title}: {counted(cases, 'case')}"
            changes = list(case_changes(compared, direction, listed))[:most]
            for change in changes:
                yield f"      {CHANGE_MARKS[direction]} {change.case}: {change.detail}"
            if cases > len(changes):
                yield f"      … and {cases - len(changes)} more (--json lists them)"
    for measure in variant_measures(compared):
        yield f"    {measure.text}"
