"""A decided run as the forms of its report read it: with the inputs and lines of its cases."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import EvalError
from evalcore.model.suite import Case
from evalcore.model.summary import Failure, Metric, Trend, TrendPoint
from evalcore.pipeline.finish import RunView
from evalcore.report.document import Report
from evalcore.report.view import CaseFacts, ListedCase, SourceLine, question_of, shown_text
from evalcore.statistics.intervals import estimate_mean
from evalcore.storage.runs import partial_reasons
from evalcore.storage.store import ObjectStore

_MAX_SUITE_BYTES = 16 * 1024 * 1024
# Wherever formats name a case: `id: x`, `- id: "x"`, `{"id": "x", …}`, and saved evals' `name`.
_CASE_ID = re.compile(
    r"""^[\s\-{]*(?:["']?(?:id|case_id|name)["']?)\s*:\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}\#][^,}\#]*)"""
)


class Presented:
    """A run's view for forms. `root` is the folder that readers know files from."""

    def __init__(self, view: RunView, root: Path | None = None) -> None:
        self._view = view
        self._root = root

    @property
    def report(self) -> Report:
        """The run without its cases."""
        return self._view.report

    def failures(self, most: int) -> tuple[Failure, ...]:
        """Return the first items that did not pass: errors, failed, blocked, then the others."""
        counts = self.report.summary.counts
        return () if counts.passed == counts.planned else self._view.failures(most)

    def reasons(self) -> list[tuple[str, int]]:
        """Return why items were skipped, and how many for each reason; the most frequent first."""
        return self._view.reasons() if self.report.summary.counts.skipped else []

    def listed(self) -> Iterator[ListedCase]:
        """Yield the report's cases in the order of the plan, the variants of a case together."""
        planned, current = self._planned(), None
        for batch in self._view.cases():
            for text in batch:
                record: dict[str, Any] = orjson.loads(text)
                # Both are in the order of the plan, so each case is looked at once.
                if current is None or (current.id, current.group) != _identity(record):
                    identity = _identity(record)
                    current = next((c for c in planned if (c.id, c.group) == identity), None)
                yield ListedCase(record, _facts(current))

    def trend(self) -> Trend | None:
        """Return the suite's scores up to this run; None without a history."""
        return run_trend(
            self._view.run.store,
            self.report,
            whole=not partial_reasons(self._view.run.known_manifest()),
        )

    def source_line(self, case: str) -> SourceLine:
        """Return where a case stands in the suite; without a line if the file has changed."""
        return SourceLine(self._file, self._lines.get(case))

    @cached_property
    def _source(self) -> Path:
        source = self._view.run.definition.source
        return Path(source.folder) / Path(source.path).name

    @cached_property
    def _file(self) -> str:
        if self._root is not None and self._source.is_relative_to(self._root):
            return self._source.relative_to(self._root).as_posix()
        return self._view.run.definition.source.path

    @cached_property
    def _lines(self) -> dict[str, int]:
        try:
            if self._source.stat().st_size > _MAX_SUITE_BYTES:
                return {}
            data = self._source.read_bytes()
        except OSError:
            return {}
        if hashlib.sha256(data).hexdigest() != self._view.run.definition.source.sha256:
            return {}
        return case_lines(data.decode("utf-8", "replace"))

    def _planned(self) -> Iterator[Case]:
        run, plan = self._view.run, self._view.plan
        for number in range(plan.parts):
            yield from run.cases(number, plan)


def case_lines(text: str) -> dict[str, int]:
    """Return the line (from 1) of each id that a suite's text gives to something; the first."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _CASE_ID.match(line)
        if match is not None:
            lines.setdefault(_scalar(match[1].strip()), number)
    return lines


def _scalar(text: str) -> str:
    if text.startswith('"'):
        try:
            return str(orjson.loads(text))
        except orjson.JSONDecodeError:
            return text.strip('"')
    return text.strip("'")


def _identity(record: dict[str, Any]) -> tuple[Any, Any]:
    return record["id"], record["group"]


def _facts(case: Case | None) -> CaseFacts:
    if case is None:
        return CaseFacts()
    question = question_of(case.input)
    expected = shown_text(case.expected_output)
    return CaseFacts(shown_text(case.input), expected, case.tags, question)


_HISTORY_RUNS: Final = "history/runs/"
_MOST_POINTS: Final = 365


def run_trend(store: ObjectStore, report: Report, *, whole: bool) -> Trend | None:
    """Return the score of the suite up to this run; None without an earlier run in the history.

    A run that is not `whole` is no point of it.

    The history is taken as it is: a report does not bring it up to date. What cannot be read is
    left out, the report does not depend on it.
    """
    if next(iter(store.list(_HISTORY_RUNS)), None) is None:
        return None
    from evalcore.history.trend import SuiteHistory

    try:
        with SuiteHistory(store, report.suite) as history:
            trend = history.trend(Metric.SCORE)
    except EvalError:
        return None
    started_at = datetime.fromisoformat(report.run.started_at)
    variants = {variant.variant for variant in report.summary.variants}
    earlier = [
        point
        for point in trend.points
        if point.started_at <= started_at and point.variant in variants
    ]
    if not any(point.run_id != report.run.id for point in earlier):
        return None
    if whole and not any(point.run_id == report.run.id for point in earlier):
        earlier += _own_points(report, started_at)
    return replace(trend, points=tuple(earlier[-_MOST_POINTS * len(variants) :]))


def _own_points(report: Report, started_at: datetime) -> list[TrendPoint]:
    points = []
    for variant in report.summary.variants:
        low, high = estimate_mean(variant.score_sample)[:2]
        decision = str(report.decision)
        points.append(
            TrendPoint(
                report.run.id, started_at, variant.variant, variant.score, low, high, decision
            )
        )
    return points
