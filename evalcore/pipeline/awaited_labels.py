"""Gates of a run that lacks labels of people: decided where no label can change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evalcore.model.annotation import AfterDeadline, AwaitedLabels
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.run import Manifest
from evalcore.model.suite import SuiteDefinition

SINCE = "annotation_since"
"""In a manifest's settings: when people could begin to answer, if that was in an earlier run."""

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
    over = late is not None and manifest.ended_at is not None and _time(manifest.ended_at) >= late
    message = awaited.message
    if over:
        message += ", the deadline is over"
        if policy is not None and policy.then is AfterDeadline.FAIL:
            return tuple(_noted(result, message, awaited) for result in results)
    alternatives = [gates_of(variants) for variants in _assumptions(definition)]
    return tuple(
        result
        if all(gates[index].outcome is result.outcome for gates in alternatives)
        else _undecided(result, message, awaited)
        for index, result in enumerate(results)
    )


def annotation_deadline(definition: SuiteDefinition, manifest: Manifest) -> datetime | None:
    """Return until when people can answer (aware); None without a deadline."""
    policy = definition.policy.annotation
    if policy is None or policy.deadline_s is None:
        return None
    since = manifest.settings.get(SINCE) or manifest.created_at
    return _time(since) + timedelta(seconds=policy.deadline_s)


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


def _undecided(result: GateResult, message: str, awaited: AwaitedLabels) -> GateResult:
    noted = _noted(replace(result, outcome=GateOutcome.INCONCLUSIVE, remedy=None), message, awaited)
    return replace(noted, message=f"{message} ({result.message} without them)")


def _noted(result: GateResult, message: str, awaited: AwaitedLabels) -> GateResult:
    if result.passed:
        return result
    missing = {"labels": awaited.labels, "items": awaited.items}
    details = {**result.details, "awaiting": missing}
    return replace(result, message=f"{result.message}; {message}", details=details)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
