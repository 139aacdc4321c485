"""Decide one gate over given results, with the tables and rules of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import orjson

from evalcore.formats.single_gate import GateQuestion, GivenRun
from evalcore.gates.builtin import DecideElsewhere, GateFunctions, RequiredCases
from evalcore.gates.decide import decide_gates
from evalcore.gates.gate import gates_of
from evalcore.model.gate import GateResult
from evalcore.model.past import PastRuns
from evalcore.model.run import Plan
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import RequiredCase, Summary, VariantSummary
from evalcore.trust.machine_faults import temporary_folder

if TYPE_CHECKING:
    from evalcore.analytics.compare import ComparisonPlan
    from evalcore.analytics.past import PastTables
    from evalcore.analytics.summary import Aggregates


def decide_question(
    question: GateQuestion,
    resolve: Callable[[str], Callable[..., Any]],
    elsewhere: DecideElsewhere | None = None,
) -> tuple[GateResult, Summary]:
    """Return the gate's result and the aggregates that it decided over.

    `resolve` gives the function of a custom gate, `elsewhere` calls it in another process.
    """
    results = question.results
    policy = Policy(
        ScoreRule.BLOCKS,
        (question.gate,),
        errors=question.errors,
        iterations=results.iterations,
    )
    summary = summarise_question(question, policy)
    functions = GateFunctions(resolve=resolve, report=lambda: _plain(summary), elsewhere=elsewhere)
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
    from evalcore.analytics.past import PastTables, PastVariant, past_rows

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
