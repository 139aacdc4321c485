"""The gates of a run over its aggregates: built in, custom, stopped early."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.errors import Damage, DamagedRunError, ObjectNotFoundError
from evalcore.gates.decide import decide_gates, unevaluated_gates, without_assertions
from evalcore.gates.own_functions import CustomGate, GateFunctions
from evalcore.isolation.mode import Isolation
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.run import Manifest
from evalcore.model.suite import Format, SuiteDefinition
from evalcore.model.summary import Summary
from evalcore.redaction.redactor import PROCESS
from evalcore.report.document import Report, undecided_head
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.analytics.summarise import Aggregates

_WHOLE_SCORES_SINCE: Final = 3  # of `model.suite.FILE_RULES`
_EVALUATED_SINCE: Final = 4


@dataclass(frozen=True, slots=True)
class DecideOptions:
    """What custom gates may call: functions given as objects by their reference, and imports.

    `isolation` says where imported functions are called.
    """

    imports: ImportPolicy = field(default_factory=ImportPolicy)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    isolation: Isolation = Isolation.INLINE

    def decide_elsewhere(self, gate: CustomGate, report: Mapping[str, Any]) -> GateResult | None:
        """Return what a custom gate decides in another process; None for a function of this one."""
        if gate.fn in self.functions:
            return None
        from evalcore.isolation.gate_calls import decide_in_process

        return decide_in_process(gate, report, self.imports)

    def resolve(self, reference: str) -> Callable[..., Any]:
        """Return the function that a custom gate names; raise `EvalError`."""
        return self.functions.get(reference) or self.imports.load(reference)


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
    if run.definition.file_rules < _WHOLE_SCORES_SINCE:
        policy = replace(policy, partial_scores=True)
    # A custom gate is foreign code.
    functions = _gate_functions(run, undecided, tables, options)
    results: Sequence[GateResult] = decide_gates(policy, summary, functions)
    if policy.stop_when_decided and not summary.nothing_gates:
        from evalcore.pipeline.stop_rule import early_results

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

    return GateFunctions(
        resolve=options.resolve,
        report=values,
        elsewhere=options.decide_elsewhere if options.isolation is Isolation.PROCESS else None,
    )


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
