"""`evalcore history` and `evalcore query`: look back over runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.options import (
    Age,
    NumberRange,
    chosen_store,
    json_option,
    store_option,
    suite_name,
)
from evalcore.cli.output import one_line, refresh, show_progress
from evalcore.errors import EvalError, ExitCode, UsageError
from evalcore.model.summary import Metric, Trend, TrendPoint
from evalcore.report.charts import interval_text, sparkline, trend_headings
from evalcore.report.document import on_one_line
from evalcore.report.tables import render_csv, render_json, render_table
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import temporary_folder
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.history.query import Answer, QueryLimits
    from evalcore.history.sync import Synced
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
    from evalcore.cli.output import refresh
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


SHOW: Final = "show"
"""The command that `evalcore history SUITE` calls."""


class HistoryGroup(click.Group):
    """A group whose arguments are those of `show` unless they begin with another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command before what names none."""
        own = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in own and SHOW in self.commands:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


@click.group(cls=HistoryGroup)
def history() -> None:
    """Look back over the runs of a suite; keep the tables of the history up to date."""


@history.command("sync")
@store_option
@json_option
def sync_command(store: str | None, as_json: bool) -> int:
    """Enter every run that has ended into the history's tables.

    The exit code is 4 if a run is damaged and was left out.
    """
    from evalcore.history.sync import sync

    return show_synced(sync(chosen_store(store), progress=show_progress(as_json=as_json)), as_json)


@history.command("rebuild")
@store_option
@json_option
def rebuild_command(store: str | None, as_json: bool) -> int:
    """Make the history's tables anew from the runs.

    Rows of runs whose results were dropped or that were deleted stay. The exit code is 4 if a run
    is damaged.
    """
    from evalcore.history.sync import rebuild

    return show_synced(
        rebuild(chosen_store(store), progress=show_progress(as_json=as_json)), as_json
    )


def show_synced(synced: Synced, as_json: bool) -> int:
    """Print what a sync has done; return the exit code."""
    if as_json:
        document = {
            "added": synced.added,
            "replaced": synced.replaced,
            "unchanged": synced.unchanged,
            "total": synced.total,
            "damaged": dict(synced.damaged),
        }
        click.echo(on_one_line(orjson.dumps(document).decode()))
    else:
        for run_id, reason in synced.damaged.items():
            click.echo(one_line(f"left out: {run_id} is damaged: {reason}"), err=True)
        if synced.unchanged:
            click.echo(f"rows stay of {counted(len(synced.unchanged), 'run')} without results")
        click.echo(
            f"{counted(len(synced.added), 'run')} added, {len(synced.replaced)} replaced, "
            f"{synced.total} in the history"
        )
    return int(ExitCode.ERRORS if synced.damaged else ExitCode.PASS)


history.add_command(show_command, SHOW)


_FORMATS: Final = ("table", "csv", "json", "parquet")
_TABLE_ROWS: Final = 100
_PROMPT, _MORE = "evalcore> ", "      ...> "
_WELCOME: Final = (
    "One SELECT over the views runs, gates, cases, assertions, and items('RUN'); it ends in ';'. "
    ".schema shows the columns, .quit ends."
)


@click.command()
@click.argument("sql", required=False, metavar="[SQL]")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="[default: table]")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
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
@click.option("--memory", "memory_mb", type=click.IntRange(min=32), default=1024, metavar="MB")
@click.option("--schema", is_flag=True, help="Show the views, their columns, types and units.")
@click.option("--no-sync", is_flag=True, help="Ask the tables as they are.")
@store_option
def query(sql: str | None, store: str | None, no_sync: bool, **flags: Any) -> None:
    """Ask the history by SQL: one SELECT over the views runs, gates, cases and assertions.

    items('RUN') has the rows of a run with their outputs. Nothing can be written, no other file
    can be read. Without SQL: a prompt on a terminal, else SQL from standard input.
    """
    form = _form(flags["form"], flags["as_json"], flags["output"])
    if flags["schema"]:
        _show_schema(form)
        return
    if sql is None and not sys.stdin.isatty():
        sql = sys.stdin.read()
    opened = chosen_store(store)
    if sql is not None:
        from evalcore.history.query import parse_statement

        parse_statement(sql)  # a wrong query is told before anything is brought up to date
    if not no_sync:
        refresh(opened)
    limits = _limits(flags)
    if sql is None:
        _converse(opened, limits, flags["limit"])
        return
    _answer(opened, sql, limits, form=form, limit=flags["limit"], output=flags["output"])


def _form(named: str | None, as_json: bool, output: Path | None) -> str:
    if as_json and named not in {None, "json"}:
        raise UsageError(f"--json and --format {named}: one format at a time")
    ending = output.suffix.lower().removeprefix(".") if output is not None else ""
    form = "json" if as_json else named or (ending if ending in _FORMATS else "table")
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise UsageError("--format parquet: a terminal shows no Parquet; write it with -o FILE")
    return form


def _limits(flags: dict[str, Any]) -> QueryLimits:
    from evalcore.history.query import QueryLimits

    return QueryLimits(memory_mb=flags["memory_mb"], time_s=flags["timeout_s"])


def _answer(
    store: ObjectStore,
    sql: str,
    limits: QueryLimits,
    *,
    form: str,
    limit: int | None,
    output: Path | None,
) -> None:
    from evalcore.history.query import ask

    if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
        raise UsageError(f"-o: {output} cannot be written: no such folder, or a folder itself")
    most = limit or (_TABLE_ROWS if form == "table" else None)
    with temporary_folder("evalcore-query-") as folder:
        written = folder / "answer"
        fetched = None if most is None else most + 1
        if form == "parquet":
            with ask(store, sql, limits, limit=most, output=written) as answer:
                answer.write_parquet(written)
            data: Iterable[bytes] = (written.read_bytes(),)
            _write(data, output)
            return
        with ask(store, sql, limits, limit=fetched) as answer:
            cut = _Cut(answer, most)
            _write((text.encode("utf-8", "replace") for text in _texts(cut, form, output)), output)
        if cut.more:
            click.echo(f"… more rows than {most}; --limit N shows N", err=True)


class _Cut:
    """The first rows of an answer; `more` says whether there were others."""

    def __init__(self, answer: Answer, most: int | None) -> None:
        self.columns = answer.columns
        self.more = False
        self._answer, self._most = answer, most

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        left = self._most
        for batch in self._answer.batches():
            if left is None:
                yield batch
                continue
            self.more = len(batch) > left
            yield list(islice(batch, left))
            left -= len(batch)
            if self.more:
                return


def _texts(cut: _Cut, form: str, output: Path | None) -> Iterator[str]:
    match form:
        case "json":
            yield from render_json(cut.columns, cut.batches())
        case "csv":
            on_terminal = output is None and sys.stdout.isatty()
            for text in render_csv(cut.columns, cut.batches()):
                yield sanitize_terminal(text) if on_terminal else text
        case _:
            for line in render_table(cut.columns, cut.batches(), one_line):
                yield f"{line}\n"


def _write(pieces: Iterable[bytes], output: Path | None) -> None:
    if output is None:
        stream = sys.stdout.buffer
        for piece in pieces:
            stream.write(piece)
        stream.flush()
        return
    part = output.with_name(f".{output.name}.part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        part.replace(output)
    except OSError as error:
        raise UsageError(f"-o: {output} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _show_schema(form: str) -> None:
    from evalcore.history.columns import TABLES

    if form == "json":
        views = [
            {
                "view": table.name,
                "row": table.row,
                "columns": [
                    {
                        "name": column.name,
                        "type": column.type,
                        "unit": column.unit or None,
                        "meaning": column.meaning,
                    }
                    for column in table.columns
                ],
            }
            for table in TABLES.values()
        ]
        click.echo(on_one_line(orjson.dumps(views).decode()))
        return
    for table in TABLES.values():
        click.echo(f"{table.name}: a row is {table.row}")
        for column in table.columns:
            unit = f"({column.unit}) " if column.unit else ""
            click.echo(f"  {column.name:<18} {column.type:<10} {unit}{column.meaning}")
        click.echo()
    click.echo("items('RUN'): the rows of a run with outputs and evidence, one for each work item")


def _converse(store: ObjectStore, limits: QueryLimits, limit: int | None) -> None:
    """Answer statements from a terminal until its end; a mistake does not end it."""
    with suppress(ImportError):
        import readline  # noqa: F401  (edits the lines that `input` reads)
    click.echo(_WELCOME, err=True)
    for text in _statements():
        if text == ".schema":
            _show_schema("table")
            continue
        try:
            _answer(store, text, limits, form="table", limit=limit, output=None)
        except EvalError as error:
            click.echo(one_line(str(error)), err=True)


def _statements() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            line = input(_MORE if lines else _PROMPT)
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(err=True)
            lines = []
            continue
        command = line.strip().rstrip(";").strip()
        if not lines and command in {".quit", ".exit", "exit", "quit"}:
            return
        if not lines and command == ".schema":
            yield command
            continue
        if line.strip() or lines:
            lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
