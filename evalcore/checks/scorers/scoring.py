"""The scorers of a suite on the evidence of one item: one entry of its row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from evalcore.checks.scorers.registry import restore_scorer
from evalcore.checks.scorers.score import Score
from evalcore.checks.scorers.scorer import Scorer, ScorerResources
from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.judging.asking import NO_JUDGES, Judges
from evalcore.model.evidence import NOTHING, Evidence
from evalcore.model.suite import Case, ScorerSpec
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.checks.subject import GradingThread


async def score_evidence(
    specs: Sequence[ScorerSpec],
    evidence: Evidence,
    case: Case,
    *,
    imports: ImportPolicy,
    objects: Mapping[str, Any] = NOTHING,
    judges: Judges = NO_JUDGES,
    workers: Workers = NO_WORKERS,
    thread: GradingThread | None = None,
) -> list[dict[str, Any]]:
    """Return `{name, value, raw, error?}` for each scorer, in their order; never raises.

    A scorer that fails has value None and the reason as `error`. It suspends only for scorers that
    are awaited, and where a `thread` runs what takes long.
    """
    resources = ScorerResources(imports, objects, judges, workers)
    entries = []
    for scorer in map(restore_scorer, specs):
        if scorer.is_awaited:
            score = await scorer.ask(evidence, case, resources)
        elif thread is None:
            score = _score(scorer, evidence, case)
        else:
            call = partial(_score, scorer, evidence, case)
            score = await thread.result(f"scorer {scorer.kind}", call)
        entries.append(score.row())
    return entries


def _score(scorer: Scorer, evidence: Evidence, case: Case) -> Score:
    try:
        return scorer.score(evidence, case)
    except (ValueError, TypeError, RecursionError) as error:  # values of the target
        return scorer.fails(f"{type(error).__name__}: {error}")
