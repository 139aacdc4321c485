"""`evalcore report` and `evalcore compare`: a completed run, alone and against an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import orjson

from evalcore.cli.options import (
    AS_JSON,
    chosen_store,
    export_option,
    json_option,
    store_option,
    verbose_option,
)
from evalcore.cli.output import (
    OUTPUT_HELP,
    export_view,
    one_line,
    present,
    print_terminal,
    write_form,
)
from evalcore.errors import DamagedRunError, ExitCode, UsageError
from evalcore.model.run import GateOutcome
from evalcore.model.summary import Difference, VariantComparison
from evalcore.pipeline.compare import ComparedRuns, compare_runs
from evalcore.pipeline.finish import RunView, view_run
from evalcore.report.comparison import variant_measures
from evalcore.report.document import comparison_entries, on_one_line
from evalcore.report.registry import JSON, check_form, damaged_json, find_form
from evalcore.storage.run_names import choose_run, choose_two
from evalcore.storage.runs import StoredRun, partial_reasons
from evalcore.wording import counted


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--html", is_flag=True, help="Print one HTML page that needs nothing else.")
@click.option("--junit", is_flag=True, help="Print JUnit XML.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--github", is_flag=True, help="Print annotations of GitHub Actions.")
@click.option(
    "--form", metavar="FORM", help="The same by name: html, junit, markdown, github, json."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help=OUTPUT_HELP)
@export_option
@store_option
@json_option
@verbose_option
def report(
    run_id: str,
    form: str | None,
    output: Path | None,
    store: str | None,
    as_json: bool,
    verbose: bool,
    exports: list[Path],
    **flags: bool,
) -> None:
    """Show the report of a completed run."""
    chosen = _chosen_form({**flags, JSON: as_json}, form)
    if output is not None and chosen is None:
        raise UsageError("-o: say which form to write: --html, --junit, --markdown, …")
    run = choose_run(chosen_store(store), run_id)
    try:
        _show(run, chosen, output, exports, verbose=verbose)
    except DamagedRunError as error:
        click.get_current_context().meta[AS_JSON] = False
        if chosen == JSON:
            write_form((damaged_json(error),), output)
        raise


def _show(
    run: StoredRun, form: str | None, output: Path | None, exports: list[Path], *, verbose: bool
) -> None:
    with view_run(run) as view:
        export_view(view, exports)
        if form is None:
            print_terminal(view, verbose=verbose)
        else:
            write_form(_pieces(view, form), output)


def _chosen_form(flags: dict[str, bool], named: str | None) -> str | None:
    """Return the one form that was asked for; None for the report for people."""
    chosen = [name for name, is_set in flags.items() if is_set]
    if named is not None:
        chosen.append(named if named == JSON else check_form(named))
    if len(set(chosen)) > 1:
        raise UsageError(f"one form at a time: {', '.join(chosen)}")
    return chosen[0] if chosen else None


def _pieces(view: RunView, form: str) -> Iterable[str | bytes]:
    return (view.json(newline=""),) if form == JSON else find_form(form)(present(view))


_MAX_LINES, _VERBOSE = 10, 200
_CODES = {
    GateOutcome.PASS: ExitCode.PASS,
    GateOutcome.FAIL: ExitCode.GATE_FAILED,
    GateOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@click.command()
@click.argument("baseline", metavar="RUN_A")
@click.argument("candidate", metavar="RUN_B")
@store_option
@json_option
@verbose_option
def compare(
    baseline: str,
    candidate: str,
    store: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Compare RUN_B with RUN_A, its baseline, case by case.

    The exit code is that of the gate no_regressions: 0 none, 1 there are some, 3 nothing could be
    compared or what differs may be chance.
    """
    chosen = choose_two(chosen_store(store), baseline, candidate)
    runs = compare_runs(*chosen)
    for manifest in (runs.baseline, runs.candidate):
        if reasons := partial_reasons(manifest):
            text = f"warning: run {manifest.id} is of a part of its suite ({'; '.join(reasons)})"
            click.echo(one_line(text), err=True)
    if as_json:
        click.echo(on_one_line(orjson.dumps(_values(runs)).decode()))
    else:
        for line in _lines(runs, _VERBOSE if verbose else _MAX_LINES):
            click.echo(one_line(line))
    return int(_CODES[runs.gate.outcome])


def _values(runs: ComparedRuns) -> dict[str, Any]:
    return {
        "baseline": {"run": runs.baseline.id, "suite": runs.baseline.suite},
        "candidate": {"run": runs.candidate.id, "suite": runs.candidate.suite},
        "outcome": runs.gate.outcome,
        "message": runs.gate.message,
        "regressions": runs.comparison.regression_count,
        "improvements": runs.comparison.improvement_count,
        "comparison": comparison_entries(runs.comparison),
        "unavailable": list(runs.comparison.unavailable),
    }


def _lines(runs: ComparedRuns, most: int) -> Iterator[str]:
    yield f"{runs.candidate.id} against {runs.baseline.id} ({runs.candidate.suite})"
    if runs.baseline.suite != runs.candidate.suite:
        yield f"  the baseline is of another suite, {runs.baseline.suite}"
    entries = comparison_entries(runs.comparison)
    for compared, entry in zip(runs.comparison.variants, entries, strict=True):
        yield from _variant_lines(compared, entry, most)
    for reason in runs.comparison.unavailable:
        yield f"  {reason}"
    yield f"{runs.gate.outcome.upper()}: {runs.gate.message}"


def _variant_lines(compared: VariantComparison, entry: dict[str, Any], most: int) -> Iterator[str]:
    name = compared.variant
    if name != compared.baseline:
        name += f" (was {compared.baseline})"
    yield f"  {name}: {counted(compared.compared, 'case')} in both"
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
    for title, cases, count, listed in (
        ("regressed", compared.regressed_cases, compared.regression_count, compared.regressions),
        ("improved", compared.improved_cases, compared.improvement_count, compared.improvements),
        ("missing", compared.missing_count, compared.missing_count, compared.missing),
    ):
        if count:
            yield f"    {title}: {_counted_cases(cases, count)}"
            for difference in listed[:most]:
                yield f"      {_difference_text(difference)}"
            if count > most:
                yield f"      … and {count - min(most, len(listed))} more (--json lists them)"
    for measure in variant_measures(compared):
        yield f"    {measure.text}"


def _counted_cases(cases: int, differences: int) -> str:
    """Return how many cases differ, each counted once, and in how many ways if those are more."""
    noun = "case" if cases == 1 else "cases"
    more = f" ({differences} differences)" if differences > cases else ""
    return f"{cases} {noun}{more}"


def _difference_text(entry: Difference) -> str:
    if entry.missing_from is not None:
        where = "both" if entry.missing_from == "both" else f"the {entry.missing_from}"
        return f"{entry.case}: missing from {where}"
    p = "" if entry.p is None else f", p = {entry.p:.4f}"
    chance = "" if entry.settled else f" (may be chance{p})"
    if entry.kind == "assertion":
        change = "passes now" if entry.now else "passed, does not now"
        return f"{entry.case}: {change}{chance}"
    was, now = entry.was or 0.0, entry.now or 0.0
    return f"{entry.case}: {entry.kind} {was:.4g} → {now:.4g}{chance}"
