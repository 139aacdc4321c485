"""`evalcore history SUITE`: the trend of a suite, a case over time, flaky cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.ages import Age
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.cli.suite_names import suite_name
from evalcore.errors import UsageError
from evalcore.model.summary import Metric, Trend, TrendPoint
from evalcore.report.charts import interval_text, sparkline, trend_headings
from evalcore.report.document import on_one_line
from evalcore.report.tables import render_table
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.history.trend import CaseHistory, CaseOutcome, FlakyCase, FlipRate, SuiteHistory

_MOST_ROWS: Final = 30
_WIDEST: Final = 80


@click.command("show")
@click.argument("suite")
@click.option("--variant", metavar="NAME", help="Only this variant.")
@click.option("--case", "case_id", metavar="ID", help="This case over time: since when it fails.")
@click.option(
    "--metric",
    type=click.Choice([metric.value for metric in Metric]),
    default=Metric.SCORE.value,
    show_default=True,
    help="The figure of each run.",
)
@click.option("--since", type=Age(), metavar="AGE", help="Only runs of this time: 90d, 12h, 2w.")
@click.option(
    "--chart",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the trend: .svg, .png or .html.",
)
@click.option("--flaky", is_flag=True, help="Cases that differ although their work is the same.")
@click.option("--all", "all_rows", is_flag=True, help=f"All runs, not only the last {_MOST_ROWS}.")
@click.option("--no-sync", is_flag=True, help="Show the tables as they are.")
@store_option
@json_option
def show_command(suite: str, store: str | None, as_json: bool, **flags: Any) -> None:
    """Show how SUITE (its name or its file) went: each run with its interval and its decision,
    and what changed since the run before.
    """
    case_id, flaky, chart = flags["case_id"], flags["flaky"], flags["chart"]
    if case_id is not None and flaky:
        raise UsageError("--case and --flaky: one at a time")
    if chart is not None and (flaky or case_id is not None):
        raise UsageError("--chart draws the trend of a suite: without --case and --flaky")
    if chart is not None:
        from evalcore.report.charts import check_chart_path

        check_chart_path(chart)
    with _opened(suite, store, flags) as history:
        if case_id is not None:
            _show_case(history.case(case_id, flags["variant"]), as_json, flags["all_rows"])
        elif flaky:
            _show_flaky(history.suite, history.flaky(flags["variant"]), as_json)
        else:
            trend = history.trend(Metric(flags["metric"]), flags["variant"])
            _show_trend(trend, as_json, flags["all_rows"])
            if chart is not None:
                _draw(trend, chart)


def _opened(suite: str, store: str | None, flags: dict[str, Any]) -> SuiteHistory:
    from evalcore.cli.fresh_history import refresh
    from evalcore.history.trend import SuiteHistory

    opened, name = chosen_store(store), suite_name(suite, store)
    if not flags["no_sync"]:
        refresh(opened)
    age: timedelta | None = flags["since"]
    since = None if age is None else datetime.now(UTC) - age
    cases = flags["flaky"] or flags["case_id"] is not None
    return SuiteHistory(opened, name, since=since, case_tables=cases)


def _draw(trend: Trend, path: Path) -> None:
    from evalcore.report.charts import draw_chart, trend_spec

    if not trend.points:
        raise UsageError(f"--chart: suite '{trend.suite}' has no run of the whole suite to draw")
    draw_chart(trend_spec(trend), path)
    click.echo(one_line(f"wrote {path}"), err=True)


def _show_trend(trend: Trend, as_json: bool, all_rows: bool) -> None:
    if as_json:
        points = list(map(_point_values, trend.points))
        partial = [_point_values(point) | {"part": point.part} for point in trend.partial]
        document = {"suite": trend.suite, "metric": trend.metric, "points": points}
        _print_json(document | {"partial": partial})
        return
    runs = len({point.run_id for point in trend.points})
    click.echo(
        one_line(f"{trend.suite}: {trend.metric.heading} of {counted(runs, 'run')}, newest last")
    )
    for line in trend_headings(trend):
        click.echo(one_line(line))
    several = len({point.variant for point in (*trend.points, *trend.partial)}) > 1
    rows = [
        (
            f"{point.started_at:%Y-%m-%d %H:%M}",
            point.run_id,
            *((point.variant,) if several else ()),
            trend.metric.text(point.value),
            interval_text(trend.metric, point),
            point.decision,
            "; ".join(point.changes),
        )
        for point in trend.points
    ]
    variant = ("variant",) if several else ()
    columns = ("started (UTC)", "run", *variant, trend.metric.heading, "95 %", "decision")
    _print_table((*columns, "changed since the run before"), rows, all_rows)
    if trend.partial:
        runs = len({point.run_id for point in trend.partial})
        click.echo(f"\n{counted(runs, 'run')} of a part of the suite, which the trend leaves out")
        rows = [
            (
                f"{point.started_at:%Y-%m-%d %H:%M}",
                point.run_id,
                *((point.variant,) if several else ()),
                trend.metric.text(point.value),
                point.decision,
                point.part or "",
            )
            for point in trend.partial
        ]
        heads = ("started (UTC)", "run", *variant, trend.metric.heading, "decision", "part")
        _print_table(heads, rows, all_rows)


def _point_values(point: TrendPoint) -> dict[str, Any]:
    return {
        "run": point.run_id,
        "started_at": _time(point.started_at),
        "variant": point.variant,
        "value": point.value,
        "low": point.low,
        "high": point.high,
        "decision": point.decision,
        "changes": list(point.changes),
    }


def _show_case(cases: Sequence[CaseHistory], as_json: bool, all_rows: bool) -> None:
    if as_json:
        _print_json([_case_values(case) for case in cases])
        return
    for number, case in enumerate(cases):
        if number:
            click.echo()
        for line in _case_lines(case, all_rows):
            click.echo(one_line(line))


def _case_lines(case: CaseHistory, all_rows: bool) -> Iterator[str]:
    group = "" if case.case_group is None else f" of {case.case_group}"
    outcomes = case.outcomes
    runs = counted(len(outcomes), "run")
    yield f"{case.case_id}{group}, variant {case.variant}: {runs}, newest last"
    yield sparkline([outcome.score for outcome in outcomes])
    if not case.failing:
        yield f"passes since {_since(_passing_since(outcomes))}"
    else:
        first, count = case.failing[0], len(case.failing)
        runs = counted(count, "run")
        yield f"fails since {_since(first)}: {runs}"
        if case.last_pass is None:
            yield "it has not passed in any of these runs"
        else:
            yield f"last passed in {_since(case.last_pass)}"
            yield f"changed between: {'; '.join(case.changes) or 'nothing that is recorded'}"
            yield from _work_line(case.same_work)
    rows = [
        (
            f"{outcome.started_at:%Y-%m-%d %H:%M}",
            outcome.run_id,
            _outcome(outcome),
            "–" if outcome.score is None else f"{outcome.score:.4f}",
            f"{outcome.passed_iterations}/{outcome.iterations}",
            "quarantined" if outcome.quarantined else "",
        )
        for outcome in outcomes
    ]
    columns = ("started (UTC)", "run", "outcome", "score", "iterations passed", "")
    yield from _table_lines(columns, rows, all_rows)


def _work_line(same: bool | None) -> Iterator[str]:
    if same:
        yield "the same work was done in both: it is flaky, or what it calls has changed"


def _passing_since(outcomes: Sequence[CaseOutcome]) -> CaseOutcome:
    first = outcomes[-1]
    for outcome in reversed(outcomes):
        if not outcome.passed:
            break
        first = outcome
    return first


def _since(outcome: CaseOutcome) -> str:
    return f"{outcome.run_id} ({outcome.started_at:%Y-%m-%d %H:%M} UTC)"


def _outcome(outcome: CaseOutcome) -> str:
    if outcome.passed:
        return "passed"
    if outcome.errors:
        return "error"
    return "blocked" if outcome.blocked and not outcome.passed_iterations else "failed"


def _case_values(case: CaseHistory) -> dict[str, Any]:
    def name(outcome: CaseOutcome | None) -> str | None:
        return None if outcome is None else outcome.run_id

    return {
        "case": case.case_id,
        "group": case.case_group,
        "variant": case.variant,
        "failing_since": name(case.failing[0] if case.failing else None),
        "failing_runs": len(case.failing),
        "last_pass": name(case.last_pass),
        "changes": list(case.changes),
        "same_work": case.same_work,
        "runs": [
            {
                "run": outcome.run_id,
                "started_at": _time(outcome.started_at),
                "outcome": _outcome(outcome),
                "score": outcome.score,
                "iterations": outcome.iterations,
                "passed_iterations": outcome.passed_iterations,
                "work_sha256": outcome.work_sha256,
                "quarantined": outcome.quarantined,
            }
            for outcome in case.outcomes
        ],
    }


def _show_flaky(suite: str, cases: Sequence[FlakyCase], as_json: bool) -> None:
    if as_json:
        listed = [
            {
                "case": case.case_id,
                "group": case.case_group,
                "variant": case.variant,
                "iterations": _rate_values(case.iterations),
                "runs": _rate_values(case.runs),
            }
            for case in cases
        ]
        _print_json({"suite": suite, "flaky": listed})
        return
    if not cases:
        click.echo(one_line(f"{suite}: no case differs where its work is the same"))
        return
    rows = [
        (
            case.case_id if case.case_group is None else f"{case.case_group}/{case.case_id}",
            case.variant,
            *_rate_cells(case.iterations),
            *_rate_cells(case.runs),
        )
        for case in cases
    ]
    columns = ("case", "variant", "iterations differ", "95 %", "runs differ", "95 %")
    _print_table(columns, rows, True)


def _rate_values(rate: FlipRate) -> dict[str, Any]:
    low, high = rate.interval or (None, None)
    return {
        "flips": rate.flips,
        "chances": rate.chances,
        "rate": rate.rate,
        "low": low,
        "high": high,
    }


def _rate_cells(rate: FlipRate) -> tuple[str, str]:
    if rate.interval is None or rate.rate is None:
        return "–", ""
    low, high = rate.interval
    return f"{rate.flips}/{rate.chances} ({rate.rate:.0%})", f"{low:.0%}–{high:.0%}"


def _print_table(columns: Sequence[str], rows: Sequence[tuple[str, ...]], all_rows: bool) -> None:
    for line in _table_lines(columns, rows, all_rows):
        click.echo(line)


def _table_lines(
    columns: Sequence[str], rows: Sequence[tuple[str, ...]], all_rows: bool
) -> Iterator[str]:
    last_rows = rows if all_rows else rows[-_MOST_ROWS:]
    if len(last_rows) < len(rows):
        yield f"({counted(len(rows) - len(last_rows), 'earlier row')}; --all shows all)"
    if last_rows:
        yield from render_table(columns, [last_rows], one_line, widest=_WIDEST)


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _print_json(value: object) -> None:
    click.echo(on_one_line(orjson.dumps(value).decode()))
