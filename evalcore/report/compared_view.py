"""Two runs side by side, as a form of the report reads one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from evalcore.model.comparison import Comparison
from evalcore.model.failure import Failure
from evalcore.model.gate import Decision, GateResult
from evalcore.model.summary import Summary, VariantSummary
from evalcore.model.trend import Trend
from evalcore.report.changes import baseline_name
from evalcore.report.document import Report
from evalcore.report.view import ListedCase, ReportView, SourceLine

_CaseKey = tuple[str, str | None]


@dataclass(frozen=True)
class ComparedView:
    """A run with the variants of its baseline beside its own; `gate` decides.

    `summary` is the candidate's with the comparison. A variant of the baseline has the name of
    `baseline_name`; those that are not compared are left out.
    """

    baseline: ReportView
    candidate: ReportView
    summary: Summary
    gate: GateResult

    @cached_property
    def report(self) -> Report:
        """The candidate's run, decided by the gate, with the variants of both runs."""
        run = self.candidate.report
        return replace(
            run,
            decision=Decision(self.gate.outcome.value),
            gates=(self.gate,),
            summary=replace(self.summary, variants=tuple(self._variants())),
            cases_complete=run.cases_complete and self.baseline.report.cases_complete,
        )

    def failures(self, most: int) -> Sequence[Failure]:
        """Return the candidate's first items that did not pass."""
        return self.candidate.failures(most)

    def reasons(self) -> Sequence[tuple[str, int]]:
        """Return why items of the candidate were skipped."""
        return self.candidate.reasons()

    def listed(self) -> Iterator[ListedCase]:
        """Yield the candidate's cases in the order of its plan, each after the baseline's.

        Cases of the baseline only come last.
        """
        names = self._baseline_names
        earlier = _CaseLookup(case for case in self.baseline.listed() if _variant(case) in names)
        for key, cases in groupby(self.candidate.listed(), key=_case_key):
            own = list(cases)
            for case in earlier.take(key):
                yield _renamed(case, names)._replace(facts=own[0].facts)
            yield from own
        for case in earlier.rest():
            yield _renamed(case, names)

    def trend(self) -> Trend | None:
        """Return the suite's scores up to the candidate."""
        return self.candidate.trend()

    def source_line(self, case: str) -> SourceLine:
        """Return where a case stands in the candidate's suite."""
        return self.candidate.source_line(case)

    @cached_property
    def _baseline_names(self) -> Mapping[str, str]:
        """The baseline's variants that are compared, each with its name in this view."""
        comparison = self.summary.comparison or Comparison()
        return {each.baseline: baseline_name(each) for each in comparison.variants}

    def _variants(self) -> Iterator[VariantSummary]:
        comparison = self.summary.comparison or Comparison()
        baselines = {each.variant: each.baseline for each in comparison.variants}
        earlier = {each.variant: each for each in self.baseline.report.summary.variants}
        for variant in self.summary.variants:
            was = earlier.get(baselines.get(variant.variant, ""))
            if was is not None:
                yield replace(was, variant=self._baseline_names[was.variant])
            yield variant


class _CaseLookup:
    """Cases by id and group; of cases that are asked for in their order few are kept."""

    def __init__(self, cases: Iterator[ListedCase]) -> None:
        self._groups = groupby(cases, key=_case_key)
        self._passed_over: dict[_CaseKey, list[ListedCase]] = {}

    def take(self, key: _CaseKey) -> list[ListedCase]:
        """Return the variants of a case; none without one, or a second time."""
        if key in self._passed_over:
            return self._passed_over.pop(key)
        for each, cases in self._groups:
            if each == key:
                return list(cases)
            self._passed_over[each] = list(cases)
        return []

    def rest(self) -> Iterator[ListedCase]:
        """Yield what was not taken."""
        for passed_over in self._passed_over.values():
            yield from passed_over
        for _, cases in self._groups:
            yield from cases


def _case_key(case: ListedCase) -> _CaseKey:
    return case.record["id"], case.record["group"]


def _variant(case: ListedCase) -> str:
    return str(case.record["variant"])


def _renamed(case: ListedCase, names: Mapping[str, str]) -> ListedCase:
    record: dict[str, Any] = {**case.record, "variant": names[_variant(case)]}
    return case._replace(record=record)
