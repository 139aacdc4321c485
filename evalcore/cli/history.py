"""`evalcore history` and `evalcore query`: what the runs of a store have in common."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from evalcore.cli.options import (
    Age,
    NumberRange,
    chosen_store,
    json_option,
    store_option,
    suite_name,
)
from evalcore.cli.output import (
    emit,
    one_line,
    refresh,
    say,
    show_progress,
    whole_file,
    write_pieces,
)
from evalcore.errors import ExitCode, UsageError
from evalcore.model.summary import Metric, Trend, TrendPoint
from evalcore.report.tables import render_csv, render_json, render_table
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.history.sync import Synced
    from evalcore.history.trend import CaseHistory, CaseOutcome, FlakyCase, FlipRate

_MOST_ROWS: Final = 30
_WIDEST: Final = 80
_FORMATS: Final = ("table", "csv", "json", "parquet")
_TABLE_ROWS: Final = 100
_BATCH_ROWS: Final = 1000

no_sync_option = click.option("--no-sync", is_flag=True, help="Read the tables as they are.")


class HistoryGroup(click.Group):
    """A group whose arguments are those of `show` unless they begin with another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command before what names none."""
        own = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in own:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=HistoryGroup)
def history() -> None:
    """Show the trend of a suite, a case over time, flaky cases; keep the tables up to date."""


@history.command("sync")
@store_option
@json_option
def sync_command(store: str | None, as_json: bool) -> int:
    """Enter every run that has ended into the history's tables.

    The exit code is 4 if a run is damaged and was left out.
    """
    from evalcore.history.sync import sync

    progress = show_progress("runs", as_json=as_json)
    return _show_synced(sync(chosen_store(store), progress=progress), as_json)


@history.command("rebuild")
@store_option
@json_option
def rebuild_command(store: str | None, as_json: bool) -> int:
    """Make the history's tables anew from the runs.

    Rows of runs whose results were dropped or that were deleted stay. The exit code is 4 if a run
    is damaged.
    """
    from evalcore.history.sync import rebuild

    progress = show_progress("runs", as_json=as_json)
    return _show_synced(rebuild(chosen_store(store), progress=progress), as_json)


def _show_synced(synced: Synced, as_json: bool) -> int:
    """Print what a sync has done; return the exit code."""
    document = {
        "added": synced.added,
        "replaced": synced.replaced,
        "unchanged": synced.unchanged,
        "total": synced.total,
        "damaged": dict(synced.damaged),
    }
    lines = [
        f"{counted(len(synced.added), 'run')} added, {len(synced.replaced)} replaced, "
        f"{synced.total} in the history"
    ]
    if synced.unchanged:
        lines.insert(0, f"rows stay of {counted(len(synced.unchanged), 'run')} without results")
    if not as_json:
        for run_id, reason in synced.damaged.items():
            say(f"left out: {run_id} is damaged: {reason}", err=True)
    emit(document, as_json, lines)
    return int(ExitCode.ERRORS if synced.damaged else ExitCode.PASS)


@history.command("show")
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
@no_sync_option
@store_option
@json_option
def show_command(
    suite: str,
    *,
    case_id: str | None,
    flaky: bool,
    chart: Path | None,
    store: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Show how SUITE (its name or its file) went: each run with its interval and its decision,
    and what changed since the run before.
    """
    if sum((case_id is not None, flaky, chart is not None)) > 1:
        raise UsageError("--case, --flaky, --chart: one at a time (a chart draws the trend)")
    from evalcore.history.trend import SuiteHistory
    from evalcore.report.charts import check_chart_path, draw_chart, trend_spec

    if chart is not None:
        check_chart_path(chart)
    opened, name, variant = chosen_store(store), suite_name(suite, store), flags["variant"]
    if not flags["no_sync"]:
        refresh(opened)
    since = None if flags["since"] is None else datetime.now(UTC) - flags["since"]
    of_cases = flaky or case_id is not None
    most = None if flags["all_rows"] else _MOST_ROWS
    with SuiteHistory(opened, name, since=since, case_tables=of_cases) as views:
        if case_id is not None:
            cases = views.case(case_id, variant)
            lines = chain.from_iterable(_case_lines(case, most) for case in cases)
            emit(list(map(_case_values, cases)), as_json, lines)
        elif flaky:
            listed = views.flaky(variant)
            value = {"suite": views.suite, "flaky": list(map(_flaky_values, listed))}
            emit(value, as_json, _flaky_lines(views.suite, listed))
        else:
            trend = views.trend(Metric(flags["metric"]), variant)
            points = list(map(_point_values, trend.points))
            partial = [_point_values(point) | {"part": point.part} for point in trend.partial]
            value = {"suite": trend.suite, "metric": trend.metric, "points": points}
            emit(value | {"partial": partial}, as_json, _trend_lines(trend, most))
            if chart is None:
                return
            if not trend.points:
                raise UsageError(
                    f"--chart: suite '{trend.suite}' has no run of the whole suite to draw"
                )
            draw_chart(trend_spec(trend), chart)
            say(f"wrote {chart}", err=True)


def _trend_lines(trend: Trend, most: int | None) -> Iterator[str]:
    from evalcore.report.charts import interval_text, trend_headings

    metric = trend.metric
    runs = counted(len({point.run_id for point in trend.points}), "run")
    yield f"{trend.suite}: {metric.heading} of {runs}, newest last"
    yield from trend_headings(trend)
    several = len({point.variant for point in (*trend.points, *trend.partial)}) > 1

    def beginning(point: TrendPoint) -> tuple[str, ...]:
        variant = (point.variant,) if several else ()
        return _started(point), point.run_id, *variant, metric.text(point.value)

    heads = ("started (UTC)", "run", *(("variant",) if several else ()), metric.heading)
    rows = [
        (*beginning(each), interval_text(metric, each), each.decision, "; ".join(each.changes))
        for each in trend.points
    ]
    yield from _table((*heads, "95 %", "decision", "changed since the run before"), rows, most)
    if trend.partial:
        runs = counted(len({point.run_id for point in trend.partial}), "run")
        yield ""
        yield f"{runs} of a part of the suite, which the trend leaves out"
        rows = [(*beginning(each), each.decision, each.part or "") for each in trend.partial]
        yield from _table((*heads, "decision", "part"), rows, most)


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


def _case_lines(case: CaseHistory, most: int | None) -> Iterator[str]:
    from evalcore.report.charts import sparkline

    group = "" if case.case_group is None else f" of {case.case_group}"
    outcomes = case.outcomes
    runs = counted(len(outcomes), "run")
    yield f"{case.case_id}{group}, variant {case.variant}: {runs}, newest last"
    yield sparkline([outcome.score for outcome in outcomes])
    if not case.failing:
        broken = [index for index, outcome in enumerate(outcomes) if not outcome.passed]
        yield f"passes since {_since(outcomes[broken[-1] + 1 if broken else 0])}"
    else:
        yield f"fails since {_since(case.failing[0])}: {counted(len(case.failing), 'run')}"
        if case.last_pass is None:
            yield "it has not passed in any of these runs"
        else:
            yield f"last passed in {_since(case.last_pass)}"
            yield f"changed between: {'; '.join(case.changes) or 'nothing that is recorded'}"
            if case.same_work:
                yield "the same work was done in both: it is flaky, or what it calls has changed"
    rows = [
        (
            _started(outcome),
            outcome.run_id,
            _outcome(outcome),
            "–" if outcome.score is None else f"{outcome.score:.4f}",
            f"{outcome.passed_iterations}/{outcome.iterations}",
            "quarantined" if outcome.quarantined else "",
        )
        for outcome in outcomes
    ]
    columns = ("started (UTC)", "run", "outcome", "score", "iterations passed", "")
    yield from _table(columns, rows, most)


def _started(row: TrendPoint | CaseOutcome) -> str:
    return f"{row.started_at:%Y-%m-%d %H:%M}"


def _since(outcome: CaseOutcome) -> str:
    return f"{outcome.run_id} ({_started(outcome)} UTC)"


def _outcome(outcome: CaseOutcome) -> str:
    if outcome.passed:
        return "passed"
    if outcome.errors:
        return "error"
    return "blocked" if outcome.blocked and not outcome.passed_iterations else "failed"


def _case_values(case: CaseHistory) -> dict[str, Any]:
    return {
        "case": case.case_id,
        "group": case.case_group,
        "variant": case.variant,
        "failing_since": case.failing[0].run_id if case.failing else None,
        "failing_runs": len(case.failing),
        "last_pass": case.last_pass and case.last_pass.run_id,
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


def _flaky_values(case: FlakyCase) -> dict[str, Any]:
    def rate(flips: FlipRate) -> dict[str, Any]:
        low, high = flips.interval or (None, None)
        return flips._asdict() | {"rate": flips.rate, "low": low, "high": high}

    return {
        "case": case.case_id,
        "group": case.case_group,
        "variant": case.variant,
        "iterations": rate(case.iterations),
        "runs": rate(case.runs),
    }


def _flaky_lines(suite: str, cases: Sequence[FlakyCase]) -> Iterator[str]:
    def cells(flips: FlipRate) -> tuple[str, str]:
        if flips.interval is None or flips.rate is None:
            return "–", ""
        low, high = flips.interval
        return f"{flips.flips}/{flips.chances} ({flips.rate:.0%})", f"{low:.0%}–{high:.0%}"

    if not cases:
        yield f"{suite}: no case differs where its work is the same"
    rows = [
        (
            case.case_id if case.case_group is None else f"{case.case_group}/{case.case_id}",
            case.variant,
            *cells(case.iterations),
            *cells(case.runs),
        )
        for case in cases
    ]
    columns = ("case", "variant", "iterations differ", "95 %", "runs differ", "95 %")
    yield from _table(columns, rows, None)


def _table(
    columns: Sequence[str], rows: Sequence[tuple[str, ...]], most: int | None
) -> Iterator[str]:
    last_rows = rows if most is None else rows[-most:]
    if len(last_rows) < len(rows):
        yield f"({counted(len(rows) - len(last_rows), 'earlier row')}; --all shows all)"
    if last_rows:
        yield from render_table(columns, [last_rows], one_line, widest=_WIDEST)


def _time(moment: datetime) -> str:
    return f"{moment.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


@click.command()
@click.argument("sql", required=False, metavar="[SQL]")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), help="How rows are written.  [default: table]"
)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most N rows.  [default: 100 of a table, else all]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=NumberRange(min=0.01),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A query that takes longer is stopped.",
)
@click.option("--schema", is_flag=True, help="Show the views, their columns, types and units.")
@no_sync_option
@store_option
def query(
    sql: str | None,
    *,
    form: str | None,
    output: Path | None,
    limit: int | None,
    timeout_s: float,
    schema: bool,
    no_sync: bool,
    store: str | None,
) -> None:
    """Query run history with SQL: one SELECT over the views runs, gates, cases and assertions.

    items('RUN') has the rows of a run with their outputs. Queries are read-only, and read no other
    file. Without SQL it is read from standard input.
    """
    if form is None:
        ending = "" if output is None else output.suffix.lower().removeprefix(".")
        form = ending if ending in _FORMATS else "table"
    if schema:
        _show_schema(form)
        return
    if sql is None and sys.stdin.isatty():
        raise UsageError('name the query: evalcore query "SELECT …" (--schema shows the views)')
    from evalcore.history.query import QueryLimits, ask, parse_statement

    sql = sys.stdin.read() if sql is None else sql
    parse_statement(sql)  # a wrong query is told before anything is brought up to date
    opened = chosen_store(store)
    if not no_sync:
        refresh(opened)
    limits = QueryLimits(time_s=timeout_s)
    if form == "parquet":
        if output is None:
            raise UsageError("Parquet is binary: use -o FILE")
        with (
            whole_file(output, "-o") as part,
            ask(opened, sql, limits, limit=limit, output=part) as answer,
        ):
            answer.write_parquet(part)
        return
    most = limit or (_TABLE_ROWS if form == "table" else None)
    with ask(opened, sql, limits, limit=None if most is None else most + 1) as answer:
        rows = chain.from_iterable(answer.batches())
        shown = islice(rows, most)
        batches = iter(lambda: list(islice(shown, _BATCH_ROWS)), [])
        write_pieces(_pieces(answer.columns, batches, form, output is None), output)
        if most is not None and next(rows, None) is not None:
            click.echo(f"… more rows than {most}; --limit N shows N", err=True)


def _pieces(
    columns: Sequence[str], batches: Iterable[Sequence[tuple[Any, ...]]], form: str, is_shown: bool
) -> Iterator[str]:
    match form:
        case "json":
            yield from render_json(columns, batches)
        case "csv":
            on_terminal = is_shown and sys.stdout.isatty()
            for text in render_csv(columns, batches):
                yield sanitize_terminal(text) if on_terminal else text
        case _:
            for line in render_table(columns, batches, one_line):
                yield f"{line}\n"


def _show_schema(form: str) -> None:
    from evalcore.history.columns import TABLES

    views = [
        {
            "view": table.name,
            "row": table.row,
            "columns": [
                {
                    name: getattr(column, name) or None
                    for name in ("name", "type", "unit", "meaning")
                }
                for column in table.columns
            ],
        }
        for table in TABLES.values()
    ]
    lines: list[str] = []
    for table in TABLES.values():
        lines.append(f"{table.name}: a row is {table.row}")
        for column in table.columns:
            unit = f"({column.unit}) " if column.unit else ""
            lines.append(f"  {column.name:<18} {column.type:<10} {unit}{column.meaning}")
        lines.append("")
    lines.append(
        "items('RUN'): the rows of a run with outputs and evidence, one for each work item"
    )
    emit(views, form == "json", lines)
