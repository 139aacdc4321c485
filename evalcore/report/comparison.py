"""What changed against the baseline, as forms list it: one entry after another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

from evalcore.model.gate import Decision, GateResult
from evalcore.model.summary import (
    HARD_KINDS,
    MEASURE_KINDS,
    Comparison,
    Difference,
    DifferenceKind,
    Failure,
    Summary,
    Trend,
    VariantComparison,
    VariantSummary,
    latency_text,
)
from evalcore.report.document import Report
from evalcore.report.figures import usd_text
from evalcore.report.view import ListedCase, ReportView, SourceLine
from evalcore.wording import counted

REGRESSION = "regression"
IMPROVEMENT = "improvement"
MISSING = "missing"
CHANGE_MARKS: Final = {REGRESSION: "▼", IMPROVEMENT: "▲", MISSING: "?"}


class CaseChange(NamedTuple):
    """A case of a variant that differs from the baseline: in which way, and how.

    It stands for `differences` entries of the comparison, one for each kind. An `allowed`
    regression is that of a quarantined case, which no gate counts.
    """

    direction: str
    variant: str
    baseline: str
    case: str
    kind: str
    detail: str
    differences: int = 1
    allowed: bool = False

    @property
    def is_hard(self) -> bool:
        """Whether one of its kinds is of `HARD_KINDS`."""
        return not HARD_KINDS.isdisjoint(self.kind.split(", "))

    @property
    def title(self) -> str:
        """The direction, and whether it is allowed."""
        return f"allowed {self.direction}" if self.allowed else self.direction


class ChangedCases(NamedTuple):
    """How many cases of a variant changed, each counted once; `allowed` ones regressed, too."""

    regressed: int = 0
    allowed: int = 0
    improved: int = 0
    missing: int = 0

    @property
    def regressed_text(self) -> str:
        """The regressed cases; those that are allowed apart."""
        allowed = f" (+{self.allowed} allowed)" if self.allowed else ""
        return f"{self.regressed}{allowed}"


def compared(report: Report) -> tuple[VariantComparison, ...]:
    """Return the comparison of each variant that has a baseline."""
    comparison = report.summary.comparison
    return () if comparison is None else comparison.variants


def no_comparison(report: Report) -> tuple[str, ...]:
    """Return why variants were not compared where they could be expected to be."""
    comparison = report.summary.comparison
    if comparison is None:
        return ()
    # All candidates have the same reason where nothing is measured in their baseline.
    unmeasured = dict.fromkeys(compared.unmeasured for compared in comparison.variants)
    return (*(reason for reason in unmeasured if reason is not None), *comparison.unavailable)


def changes(report: Report) -> tuple[CaseChange, ...]:
    """Return the listed regressions of all variants, then what is missing, then improvements.

    They are of outcomes and scores (`measure_changes` has the others). The regressions of
    quarantined cases come last, and those of `HARD_KINDS` before those of scores.
    """
    variants = compared(report)
    quarantined = frozenset(report.quarantine.case_ids)
    regressions = [
        change._replace(allowed=change.case in quarantined)
        for each in variants
        for change in _of(each, REGRESSION, each.regressions)
    ]
    regressions.sort(key=lambda change: (change.allowed, not change.is_hard))
    return (
        *regressions,
        *(change for each in variants for change in _of(each, MISSING, each.missing)),
        *(change for each in variants for change in _of(each, IMPROVEMENT, each.improvements)),
    )


def changed_cases(report: Report, candidate: VariantComparison) -> ChangedCases:
    """Return how many cases of a variant changed in outcome or score, listed or not."""
    quarantined = frozenset(report.quarantine.case_ids)
    # The counts of the comparison have quarantined cases, too.
    allowed = len({each.case for each in candidate.regressions if each.case in quarantined})
    return ChangedCases(
        max(0, candidate.regressed_cases - allowed),
        allowed,
        candidate.improved_cases,
        candidate.missing_count,
    )


class MeasureChange(NamedTuple):
    """A measure of a variant's whole run beside its baseline's, and how many cases differ."""

    variant: str
    baseline: str
    measure: str
    was: str
    now: str
    change: str
    worse: int
    better: int

    @property
    def text(self) -> str:
        """`latency 100 ms → 150 ms (+50%), 3 cases worse, 1 better`."""
        change = f" ({self.change})" if self.change else ""
        worse = f"{counted(self.worse, 'case')} worse, {self.better} better"
        return f"{self.measure} {self.was} → {self.now}{change}, {worse}"


def measure_changes(report: Report) -> tuple[MeasureChange, ...]:
    """Return the measures of which a case differs from the baseline by more than is tolerated."""
    return tuple(change for each in compared(report) for change in variant_measures(each))


def variant_measures(candidate: VariantComparison) -> Iterator[MeasureChange]:
    """Yield the measures of one variant of which a case differs from the baseline."""
    for each in candidate.measures:
        worse = candidate.regression_kinds.get(each.kind, 0)
        better = candidate.improvement_kinds.get(each.kind, 0)
        if each.kind not in MEASURE_KINDS or not worse + better:
            continue
        yield MeasureChange(
            *(candidate.variant, baseline_name(candidate), _MEASURES[each.kind]),
            *(_value(each.kind, each.was), _value(each.kind, each.now)),
            f"{each.now / each.was - 1:+.0%}" if each.was else "",
            *(worse, better),
        )


def baseline_name(variant: VariantComparison) -> str:
    """Return the baseline as people name it: a variant of this run, or of another one."""
    return variant.baseline if variant.run is None else f"{variant.baseline} of {variant.run}"


def _of(
    variant: VariantComparison, direction: str, differences: tuple[Difference, ...]
) -> Iterator[CaseChange]:
    name = baseline_name(variant)
    by_case: dict[str, list[Difference]] = {}
    for difference in differences:
        by_case.setdefault(difference.case, []).append(difference)
    for case, listed in by_case.items():
        kinds = ", ".join(difference.kind for difference in listed)
        detail = ", ".join(map(_detail, listed))
        yield CaseChange(direction, variant.variant, name, case, kinds, detail, len(listed))


def _detail(difference: Difference) -> str:
    """Return both values in their unit, and by how much a measure changed."""
    kind, was, now = difference.kind, difference.was, difference.now
    if difference.missing_from is not None:
        absent = difference.missing_from
        text = "on neither side" if absent == "both" else f"not in the {absent}"
    elif was is None and now is None:
        text = ""
    else:
        text = f"{_value(kind, was)} → {_value(kind, now)}"
        if kind in MEASURE_KINDS and was and now is not None:
            text += f" ({now / was - 1:+.0%})"
    doubts = [] if difference.p is None else [f"p {difference.p:.3g}"]
    if not difference.settled:
        doubts.append("may be chance")
    if doubts and difference.missing_from is None:
        text = f"{text} ({', '.join(doubts)})"
    return text if kind in _SPEAKING else f"{kind} {text}"


_MEASURES: Final = {
    DifferenceKind.LATENCY: "median latency",
    DifferenceKind.COST: "cost",
    DifferenceKind.TOKENS: "tokens",
}
_SPEAKING = frozenset({DifferenceKind.ASSERTION, DifferenceKind.MISSING})


def _value(kind: DifferenceKind, value: float | None) -> str:
    if value is None:
        return "–"
    match kind:
        case DifferenceKind.ASSERTION:
            text = {1.0: "passed", 0.0: "failed"}.get(value, f"{value:.4g}")
        case DifferenceKind.LATENCY:
            text = f"{latency_text(value)} ms"
        case DifferenceKind.COST:
            text = f"{usd_text(value)} USD"
        case DifferenceKind.TOKENS:
            text = f"{value:.0f} tokens"
        case _:
            text = f"{value:.4g}"
    return text


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
        earlier: dict[_CaseKey, list[ListedCase]] = {}
        for case in self.baseline.listed():
            if (name := names.get(case.record["variant"])) is not None:
                renamed = case._replace(record={**case.record, "variant": name})
                earlier.setdefault(_case_key(case), []).append(renamed)
        for key, cases in groupby(self.candidate.listed(), key=_case_key):
            own = list(cases)
            for case in earlier.pop(key, ()):
                yield case._replace(facts=own[0].facts)
            yield from own
        for left in earlier.values():
            yield from left

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


def _case_key(case: ListedCase) -> _CaseKey:
    return case.record["id"], case.record["group"]


SAME: Final = "same"
REMOVED: Final = "removed"
ADDED: Final = "added"
# The comparison of a word takes longer the more words there are: beyond these it takes seconds.
_MOST_WORDS: Final = 1_500
_WORD: Final = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")


class Piece(NamedTuple):
    """Part of a text: `same` in both, `removed` from the first, or `added` in the second."""

    kind: str
    text: str


class WordDifference(NamedTuple):
    """The pieces that make the second text of the first, in order.

    `shared` is the share of the words that both have, from 0 to 1. `compared_all` says whether
    all words were compared; otherwise the rest of both texts is not in `pieces`.
    """

    pieces: tuple[Piece, ...]
    shared: float
    compared_all: bool = True

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs in what was compared."""
        return all(piece.kind == SAME for piece in self.pieces)


def word_difference(was: str, now: str) -> WordDifference:
    """Return what differs between two texts; at most their first 1 500 words are compared.

    `same` and `removed` pieces make the first text, `same` and `added` ones the second, but for
    white space between words, which is the second text's where only that differs.
    """
    words = [_words(was), _words(now)]
    before, after = (each[:_MOST_WORDS] for each in words)
    bare_before, bare_after = (tuple(word.strip() for word in each) for each in (before, after))
    matcher = SequenceMatcher(None, bare_before, bare_after)
    pieces = tuple(_pieces(matcher, before, after))
    return WordDifference(pieces, matcher.ratio(), max(map(len, words)) <= _MOST_WORDS)


def _words(text: str) -> list[str]:
    """Return the words of a text, each with the white space before it; of a long text the first."""
    words: list[str] = []
    for match in _WORD.finditer(text):
        words.append(match[0])
        if len(words) > _MOST_WORDS:
            break
    return words


def _pieces(
    matcher: SequenceMatcher[str], before: Sequence[str], after: Sequence[str]
) -> Iterator[Piece]:
    for tag, start, stop, new_start, new_stop in matcher.get_opcodes():
        if tag == "equal":
            yield Piece(SAME, "".join(after[new_start:new_stop]))
            continue
        if stop > start:
            yield Piece(REMOVED, "".join(before[start:stop]))
        if new_stop > new_start:
            yield Piece(ADDED, "".join(after[new_start:new_stop]))
