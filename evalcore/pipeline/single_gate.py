"""Decide one gate over given results, with the tables and rules of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from evalcore.formats.single_gate import GateQuestion
from evalcore.gates.decide import decide_gates
from evalcore.gates.own_functions import DecideElsewhere, GateFunctions
from evalcore.model.gate import GateResult
from evalcore.model.run import Plan
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import Summary, VariantSummary


def decide_question(
    question: GateQuestion,
    resolve: Callable[[str], Callable[..., Any]],
    elsewhere: DecideElsewhere | None = None,
) -> tuple[GateResult, Summary]:
    """Return the gate's result and the aggregates that it decided over.

    `resolve` gives the function of a custom gate, `elsewhere` calls it in another process.
    """
    policy = Policy(
        ScoreRule.BLOCKS,
        (question.gate,),
        errors=question.errors,
        iterations=question.iterations,
    )
    summary = _summarise(question, policy)
    functions = GateFunctions(resolve=resolve, report=lambda: _plain(summary), elsewhere=elsewhere)
    return decide_gates(policy, summary, functions)[0], summary


def _plain(summary: Summary) -> dict[str, Any]:
    """Return the summary as JSON values, for a function; without what intervals are made of."""
    values = asdict(summary)
    for part in (values, *values["variants"]):
        for name in [name for name in part if name.endswith("_sample")]:
            del part[name]
    return values


def _summarise(question: GateQuestion, policy: Policy) -> Summary:
    from evalcore.analytics.compare import ComparisonPlan
    from evalcore.analytics.summarise import Aggregates
    from evalcore.sql.rows import write_rows

    baseline, comparison_plan, missing = question.baseline, None, None
    if baseline in question.variants:
        comparison_plan = ComparisonPlan(
            question.variants, baseline, tolerances=question.tolerances
        )
    elif baseline is not None:
        missing = f"the baseline '{baseline}' is not among the variants"
    size = len(question.rows)
    variants = max(len(question.variants), 1)
    plan = Plan(size, question.cases, variants, question.iterations, 1, max(size, 1), 1, 1)
    with TemporaryDirectory(prefix="evalcore-decide-") as folder:
        part = Path(folder) / "00000.parquet"
        lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in question.rows]
        write_rows(lines, part)
        with Aggregates([part], plan, policy, comparison_plan) as tables:
            summary = tables.summary()
    measured = {summed.variant: summed for summed in summary.variants}
    every = (measured.get(name, VariantSummary(name, 0, 0, None)) for name in question.variants)
    return replace(summary, variants=tuple(every), no_baseline=missing)
