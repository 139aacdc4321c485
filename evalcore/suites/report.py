"""What a run of a suite came to, as Python values (docs/reference/suites.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from evalcore.checks.scorers import Score, stored_raw
from evalcore.execution.row import row_metrics
from evalcore.model.evidence import Artifact, Evidence
from evalcore.model.run import Decision, GateResult
from evalcore.model.suite import Case, artifact_of
from evalcore.planning.codec import decode_evidence
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun
from evalcore.trust.text import sanitize_terminal

if TYPE_CHECKING:
    from evalcore.history.query import Relation as DuckDBPyRelation


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """Counts of cases (case × variant, iterations reduced) and gates."""

    total_cases: int
    passed_cases: int
    failed_cases: int
    errored_cases: int
    pass_rate: float
    gates_passed: int
    total_gates: int
    regressions: int
    improvements: int = 0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one assertion found; `outcome` is passed, failed, blocked or error."""

    name: str
    type: str
    passed: bool
    outcome: str
    score: float
    actual: str | None
    expected: str | None
    message: str
    weight: float = 1.0
    block: str | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One work item. `error` says why it gave no answer; it did not pass then."""

    case: str
    variant: str
    iteration: int
    passed: bool
    score: float | None
    status: str
    outcome: str | None
    artifact: Artifact
    assertions: tuple[CheckResult, ...] = ()
    scores: tuple[Score, ...] = ()
    error: str | None = None
    error_kind: str | None = None


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The cases of one variant, iterations reduced."""

    variant: str
    cases: int
    passed: int
    pass_rate: float
    score: float | None
    is_baseline: bool = False
    case_results: tuple[CaseResult, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class SuiteReport:
    """The report of a completed run. `case_results` are read from the store when asked for.

    `comparison` has an entry for each candidate, as in `report.json`.
    """

    suite: str
    run_id: str
    decision: Decision
    passed: bool
    score: float | None
    summary: SuiteSummary
    gate_results: tuple[GateResult, ...]
    comparison: tuple[Mapping[str, Any], ...]
    variant_summaries: tuple[VariantResult, ...] = field(repr=False)
    run: StoredRun = field(repr=False, compare=False)

    @cached_property
    def case_results(self) -> tuple[CaseResult, ...]:
        """Every work item in the order of the plan."""
        return tuple(_case_results(self.run))

    @cached_property
    def variants(self) -> tuple[VariantResult, ...]:
        """The results of each variant, in the suite's order."""
        from dataclasses import replace

        by_variant: dict[str, list[CaseResult]] = {}
        for result in self.case_results:
            by_variant.setdefault(result.variant, []).append(result)
        return tuple(
            replace(variant, case_results=tuple(by_variant.get(variant.variant, ())))
            for variant in self.variant_summaries
        )

    def rows(self) -> DuckDBPyRelation:
        """Return the run's work items as a DuckDB relation, in the order of the plan.

        The columns are those of the store's rows (docs/reference/store.md).
        """
        from evalcore.history.query import item_relation

        return item_relation(self.run)

    def df(self) -> Any:
        """Return the run's work items as a pandas DataFrame; `rows()` has other forms."""
        from evalcore.sql.tables import data_frame

        return data_frame(self.rows())

    def __str__(self) -> str:
        """Return the report as the command line prints it."""
        from evalcore.pipeline.finish import view_run
        from evalcore.report.terminal import SHOWN_FAILURES, Style, render_terminal

        with view_run(self.run) as view:
            lines = render_terminal(view, Style(_on_one_line), most=SHOWN_FAILURES)
            text = "\n".join(line for _, line in lines)
        return f"{text}\nrun {self.run_id} in {sanitize_terminal(self.run.store.url)}"

    def _repr_html_(self) -> str:
        """Return the HTML report in a frame of its own, for notebooks."""
        from html import escape

        from evalcore.pipeline.finish import view_run
        from evalcore.report.html import render

        with view_run(self.run) as view:
            page = "".join(render(view))
        return (
            '<iframe sandbox="allow-scripts" style="width:100%;height:640px;border:0" '
            f'srcdoc="{escape(page)}"></iframe>'
        )

    def json(self) -> dict[str, Any]:
        """Return `report.json` as values."""
        report: dict[str, Any] = orjson.loads(self.run.store.get(self.run.keys.report).data)
        return report


def _on_one_line(text: str) -> str:
    return sanitize_terminal(text).replace("\n", "\\n").replace("\t", " ")


def _case_results(run: StoredRun) -> Iterator[CaseResult]:
    """Yield the results of a run's items from its stored rows and its plan."""
    from evalcore.sql.tables import read_rows

    plan = run.manifest().plan
    executed = frozenset(run.store.list_folders(run.keys.events_prefix))
    number, cases = -1, list[Case]()
    with run.result_files(plan) as parts:
        for part in parts:
            for row in read_rows(part):
                case_index = row["item"] // plan.items_per_case
                if case_index // plan.part_cases != number:
                    number = case_index // plan.part_cases
                    cases = run.cases(number, plan)
                prefix = run.keys.item_events(row["item"])
                has_events = prefix.rstrip("/").rpartition("/")[2] in executed
                events = _events(run, prefix) if has_events else ()
                yield _case_result(run, row, cases[case_index % plan.part_cases], events)


def _events(run: StoredRun, prefix: str) -> tuple[Mapping[str, Any], ...]:
    """Return the events of a workflow's last execution, as `workflow.run_store` wrote them."""
    last = max(run.store.list_folders(prefix), default=None)
    if last is None:
        return ()
    parts = [run.store.get(info.key).data for info in run.store.list(f"{prefix}{last}/events-")]
    return tuple(orjson.loads(line) for part in parts for line in part.splitlines())


def _case_result(
    run: StoredRun, row: Mapping[str, Any], case: Case, events: tuple[Mapping[str, Any], ...]
) -> CaseResult:
    evidence = _evidence(run, row)
    error = row["error"]
    checks = tuple(_check(entry, evidence) for entry in row["assertions"] or ())
    scores = tuple(
        Score(entry["name"], entry["value"], stored_raw(entry["raw"]), entry.get("error"))
        for entry in row["scores"] or ()
    )
    return CaseResult(
        case=row["case_id"],
        variant=row["variant"],
        iteration=row["iteration"],
        passed=row["outcome"] == "passed",
        score=row["score"],
        status=row["status"],
        outcome=row["outcome"],
        artifact=artifact_of(evidence, case, events=events),
        assertions=checks,
        scores=scores,
        error=None if error is None else error["message"],
        error_kind=None if error is None else error["kind"],
    )


def _evidence(run: StoredRun, row: Mapping[str, Any]) -> Evidence:
    output = _text(run, row["output"], row["output_ref"])
    text = _text(run, row["evidence"], row["evidence_ref"])
    evidence = Evidence(output) if text is None else decode_evidence(orjson.loads(text))
    return evidence._replace(metrics=row_metrics(row))


def _text(run: StoredRun, text: str | None, reference: str | None) -> str | None:
    if reference is None:
        return text
    return run.store.get(blob_key(reference)).data.decode("utf-8", "surrogatepass")


def _check(entry: Mapping[str, Any], evidence: Evidence) -> CheckResult:
    actual = entry["actual"]
    return CheckResult(
        name=entry["name"],
        type=entry["type"],
        passed=entry["outcome"] == "passed",
        outcome=entry["outcome"],
        score=entry["score"],
        actual=_looked_at(entry, evidence) if actual is None else actual,
        expected=entry["expected"],
        message=entry["message"] or "",
        weight=entry["weight"],
        block=entry["block"],
    )


def _looked_at(entry: Mapping[str, Any], evidence: Evidence) -> str | None:
    """Return what an assertion that passed looked at: rows do not repeat it for each."""
    block = entry["block"]
    return evidence.output if block is None else evidence.outputs.get(block)
