"""DECIDE: what the gates say of a run's rows, and the report with their decision.

Also a single gate over results that are given (`evalcore decide`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.errors import Damage, DamagedRunError, ObjectNotFoundError
from evalcore.gates.builtin import CustomGate, GateFunctions, RequiredCases
from evalcore.gates.decide import decide_gates, decide_run, unevaluated_gates, without_assertions
from evalcore.gates.gate import gates_of
from evalcore.isolation.mode import Isolation
from evalcore.model.annotation import AfterDeadline, AwaitedLabels
from evalcore.model.past import PastRuns
from evalcore.model.run import GateOutcome, GateResult, Manifest, Plan
from evalcore.model.suite import Format, Policy, ScoreRule, SuiteDefinition
from evalcore.model.summary import RequiredCase, Summary, VariantSummary
from evalcore.pipeline.compare import ReportSources
from evalcore.pipeline.plan import ANNOTATION_SINCE
from evalcore.redaction.redactor import PROCESS
from evalcore.report.document import Report, undecided_head
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.machine_faults import temporary_folder

if TYPE_CHECKING:
    from evalcore.analytics.compare import ComparisonPlan
    from evalcore.analytics.gate_tables import PastTables
    from evalcore.analytics.summary import Aggregates
    from evalcore.formats.single_gate import GateQuestion, GivenRun

_EVALUATED_SINCE: Final = 4  # of `model.suite.FILE_RULES`


@dataclass(frozen=True, slots=True)
class DecideOptions:
    """What custom gates may call: functions given as objects by their reference, and imports.

    `isolation` says where imported functions are called.
    """

    imports: ImportPolicy = field(default_factory=ImportPolicy)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    isolation: Isolation = Isolation.INLINE

    def resolve(self, gate: CustomGate) -> Callable[..., Any]:
        """Return the function of a gate, or what calls it in a process; raise `EvalError`."""
        reference = str(gate.fn)
        if (function := self.functions.get(reference)) is not None:
            return function
        if self.isolation is Isolation.INLINE:
            return self.imports.load(reference)
        from evalcore.isolation.gate_calls import decide_in_process

        return partial(decide_in_process, gate, self.imports)


def gate_results(
    run: StoredRun,
    manifest: Manifest,
    undecided: Report,
    tables: Aggregates,
    options: DecideOptions | None,
) -> Sequence[GateResult]:
    """Return what the gates decide over the summary of a report."""
    policy, summary = run.definition.policy, undecided.summary
    if has_evaluated_nothing(run.definition, summary):
        return unevaluated_gates(policy, summary)
    # A custom gate is foreign code.
    functions = _gate_functions(run, undecided, tables, options)
    results: Sequence[GateResult] = decide_gates(policy, summary, functions)
    if policy.stop_when_decided and not summary.nothing_gates:
        from evalcore.pipeline.early_stop import early_results

        results = early_results(run.definition, manifest, tables, results)
    if _asserts_nothing(run.definition, summary):
        results = without_assertions(policy, results)
    return results


def _asserts_nothing(definition: SuiteDefinition, summary: Summary) -> bool:
    """Whether passes and scores of a suite say nothing: no evaluated case has an assertion.

    In workflow files such a case passes with the score 1, as in their source program; tests and
    saved evals have assertions, and those of scripts a score of their own.
    """
    return (
        definition.format is Format.SUITE
        and definition.file_rules >= _EVALUATED_SINCE
        and not definition.scorers
        and summary.asserted == 0
    )


def has_evaluated_nothing(definition: SuiteDefinition, summary: Summary) -> bool:
    """Whether a run is in error because it evaluated nothing; older runs were decided by gates."""
    return definition.file_rules >= _EVALUATED_SINCE and summary.nothing_evaluated


def _gate_functions(
    run: StoredRun, undecided: Report, tables: Aggregates, options: DecideOptions | None
) -> GateFunctions | None:
    """Return what custom gates need, None if there is none."""
    if not any(gate.gate == CustomGate.gate for gate in run.definition.policy.gates):
        return None
    if options is None:
        return GateFunctions(stored=dict(enumerate(_stored_gates(run))))

    def values() -> dict[str, Any]:
        cases = [orjson.loads(text) for batch in tables.report_cases() for text in batch]
        return undecided_head(undecided) | {"cases": cases}

    return GateFunctions(options.resolve, values)


def _stored_gates(run: StoredRun) -> list[GateResult]:
    """Return the gates as the stored report has them; raise `DamagedRunError`."""
    try:
        stored = orjson.loads(run.store.get(run.keys.report).data)["gates"]
        return [
            GateResult(
                raw["name"],
                GateOutcome(raw["outcome"]),
                raw["message"],
                raw["details"],
                raw.get("remedy"),
            )
            for raw in stored
        ]
    except (ObjectNotFoundError, ValueError, LookupError, TypeError) as error:
        reason = f"does not tell what its own gates said: {error}"
        raise DamagedRunError(run.run_id, (Damage("report.json", reason),)) from error


def without_secrets(gate: GateResult) -> GateResult:
    """Return a gate's result without secrets."""
    if not PROCESS.knows:
        return gate
    return replace(gate, message=PROCESS.text(gate.message), details=PROCESS.value(gate.details))


GatesOf = Callable[[Sequence[int]], Sequence[GateResult]]
"""Decides the gates with people answering as expected in these variants (by number)."""


def decide_awaiting(
    definition: SuiteDefinition,
    manifest: Manifest,
    awaited: AwaitedLabels,
    results: Sequence[GateResult],
    gates_of: GatesOf,
) -> tuple[GateResult, ...]:
    """Return the gates of a run that lacks labels.

    `results` are the gates with the unanswered assertions counted as not passed. A gate that would
    decide otherwise with labels is inconclusive, and says how many are missing; after the deadline
    of a suite that fails then it stays as it is.
    """
    policy = definition.policy.annotation
    late = annotation_deadline(definition, manifest)
    ended = None if manifest.ended_at is None else datetime.fromisoformat(manifest.ended_at)
    over = late is not None and ended is not None and ended >= late
    message = awaited.message
    if over:
        message += ", the deadline is over"
        if policy is not None and policy.then is AfterDeadline.FAIL:
            return tuple(_noted(result, message, awaited) for result in results)
    alternatives = [gates_of(variants) for variants in _assumptions(definition)]
    return tuple(
        result
        if all(gates[index].outcome is result.outcome for gates in alternatives)
        else _undecided_gate(result, message, awaited)
        for index, result in enumerate(results)
    )


def annotation_deadline(definition: SuiteDefinition, manifest: Manifest) -> datetime | None:
    """Return until when people can answer (aware); None without a deadline."""
    policy = definition.policy.annotation
    if policy is None or policy.deadline_s is None:
        return None
    since = manifest.settings.get(ANNOTATION_SINCE) or manifest.created_at
    return datetime.fromisoformat(since) + timedelta(seconds=policy.deadline_s)


def _assumptions(definition: SuiteDefinition) -> Iterator[Sequence[int]]:
    """Yield the variants in which people answer as expected.

    More passes are better for every gate but those that compare: the baseline's passes are worse
    for the others, so that both sides are assumed apart, too.
    """
    names = [variant.id for variant in definition.variants]
    yield range(len(names))
    if definition.baseline in names:
        number = names.index(definition.baseline)
        yield (number,)
        yield [other for other in range(len(names)) if other != number]


def _undecided_gate(result: GateResult, message: str, awaited: AwaitedLabels) -> GateResult:
    noted = _noted(replace(result, outcome=GateOutcome.INCONCLUSIVE, remedy=None), message, awaited)
    return replace(noted, message=f"{message} ({result.message} without them)")


def _noted(result: GateResult, message: str, awaited: AwaitedLabels) -> GateResult:
    if result.passed:
        return result
    missing = {"labels": awaited.labels, "items": awaited.items}
    details = {**result.details, "awaiting": missing}
    return replace(result, message=f"{result.message}; {message}", details=details)


def decided_report(
    sources: ReportSources,
    tables: Aggregates,
    undecided: Report,
    options: DecideOptions | None,
) -> Report:
    """Return the report with the gates' results; `tables` and `undecided` have all cases."""
    run, manifest = sources.run, sources.manifest
    with ExitStack() as stack:
        gating, gated = undecided, tables
        if undecided.quarantine.active:
            # Gates decide as if the quarantined cases were not there; the report has them all.
            left_out = undecided.quarantine.case_ids
            gated = stack.enter_context(sources.aggregates(left_out=left_out))
            gating = replace(undecided, summary=sources.summary(gated))
        results = gate_results(run, manifest, gating, gated, options)
    report, evaluated = undecided, not has_evaluated_nothing(run.definition, gating.summary)
    if run.definition.policy.auto_iterations and evaluated:
        from evalcore.pipeline.early_stop import decide_rounds

        results, rounds = decide_rounds(run, manifest, sources.parts, tables, results)
        report = replace(report, iterations=rounds)
    results = _with_awaited_labels(sources, gating, results, options)
    gates = tuple(map(without_secrets, results))
    decision = decide_run(gates, undecided.summary, gating.summary, evaluated=evaluated)
    return replace(report, gates=gates, decision=decision)


def _with_awaited_labels(
    sources: ReportSources,
    gating: Report,
    results: Sequence[GateResult],
    options: DecideOptions | None,
) -> Sequence[GateResult]:
    """Return what the gates say while people have not answered everything yet."""
    run, manifest = sources.run, sources.manifest
    if (awaited := gating.summary.awaiting) is None:
        return results

    def gates_of(variants: Sequence[int]) -> Sequence[GateResult]:
        left_out = gating.summary.quarantined
        with sources.aggregates(left_out=left_out, best_variants=variants) as tables:
            answered = replace(gating, summary=sources.summary(tables))
            return gate_results(run, manifest, answered, tables, options)

    return decide_awaiting(run.definition, manifest, awaited, results, gates_of)


def decide_question(
    question: GateQuestion, resolve: Callable[[CustomGate], Callable[..., Any]]
) -> tuple[GateResult, Summary]:
    """Return the gate's result and the aggregates that it decided over."""
    results = question.results
    policy = Policy(
        ScoreRule.BLOCKS,
        (question.gate,),
        errors=question.errors,
        iterations=results.iterations,
    )
    summary = summarise_question(question, policy)
    functions = GateFunctions(resolve, lambda: _plain(summary))
    return decide_gates(policy, summary, functions)[0], summary


def _plain(summary: Summary) -> dict[str, Any]:
    """Return the summary as JSON values, for a function; without what intervals are made of."""
    values = asdict(summary)
    for part in (values, *values["variants"]):
        for name in [name for name in part if name.endswith("_sample")]:
            del part[name]
    return values


def summarise_question(question: GateQuestion, policy: Policy) -> Summary:
    """Return the aggregates that the gates of a policy decide over."""
    from evalcore.analytics.compare import ComparisonPlan

    results, baseline = question.results, question.baseline
    comparison_plan, missing = None, None
    if baseline in results.variants:
        comparison_plan = ComparisonPlan(results.variants, baseline, tolerances=question.tolerances)
    elif baseline is not None:
        missing = f"the baseline '{baseline}' is not among the variants"
    past = _past(question, policy) if question.history else None
    with _tables(results, policy, comparison_plan, past) as tables:
        summary = tables.summary()
    measured = {summed.variant: summed for summed in summary.variants}
    every = (measured.get(name, VariantSummary(name, 0, 0, None)) for name in results.variants)
    empty = [name for name in results.variants if name not in measured]
    missed = (*summary.required_cases, *_not_run(policy, empty))
    return replace(summary, variants=tuple(every), required_cases=missed, no_baseline=missing)


def _not_run(policy: Policy, empty: Sequence[str]) -> Iterator[RequiredCase]:
    """Yield what a gate requires of variants without any result: the tables do not have them."""
    for gate in gates_of(policy, RequiredCases):
        for case in gate.case_ids:
            yield from (RequiredCase(case, variant, was_run=False) for variant in empty)


def _past(question: GateQuestion, policy: Policy) -> PastTables:
    """Return the earlier runs of a question; their work is taken for the same."""
    from evalcore.analytics.gate_tables import PastTables, PastVariant, past_rows

    runs, cases = [], []
    for number, run in enumerate(question.history, 1):
        columns = [PastVariant(number, run.name, variant) for variant in run.variants]
        # The rows name their variant by its index in the list.
        rows = tuple(
            row | {"variant": str(row["item"] // run.iterations % len(columns))} for row in run.rows
        )
        own = replace(policy, gates=(), iterations=run.iterations)
        given = run._replace(variants=tuple(map(str, range(len(columns)))), rows=rows)
        with _tables(given, own, None, PastTables(PastRuns())) as tables:
            own_runs, own_cases = past_rows(tables.connection, columns)
        runs += own_runs
        cases += own_cases
    names = tuple(run.name for run in question.history)
    return PastTables(PastRuns(names), runs=tuple(runs), cases=tuple(cases))


@contextmanager
def _tables(
    results: GivenRun,
    policy: Policy,
    comparison_plan: ComparisonPlan | None,
    past: PastTables | None,
) -> Iterator[Aggregates]:
    """Give the tables of results as if they were a run's."""
    from evalcore.analytics.summary import Aggregates
    from evalcore.sql.rows import write_rows

    size = len(results.rows)
    variants = max(len(results.variants), 1)
    plan = Plan(size, results.cases, variants, results.iterations, 1, max(size, 1), 1, 1)
    with temporary_folder("evalcore-decide-") as folder:
        part = folder / "00000.parquet"
        lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in results.rows]
        write_rows(lines, part)
        with Aggregates([part], plan, policy, comparison_plan, past) as tables:
            yield tables
