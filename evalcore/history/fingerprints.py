"""What tells two runs of a suite apart: digests of its targets, cases and judges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from evalcore.model.identity import JUDGED, target_identity
from evalcore.model.run import Plan
from evalcore.model.suite import SuiteDefinition
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.planning.spool import decompress_frame
from evalcore.storage.runs import StoredRun


def variant_target(definition: SuiteDefinition, variant: Variant) -> Target | None:
    """Return the target that a variant evaluates where a case names none."""
    name = variant.target or definition.default_target
    return None if name is None else definition.targets.get(name)


def variant_model(definition: SuiteDefinition, variant: Variant) -> str | None:
    """Return the model that a variant's target names after the variant."""
    target = variant_target(definition, variant)
    options = {} if target is None else target.options
    model = variant.config.get("model", options.get("model"))
    return model if isinstance(model, str) else None


def target_sha256(definition: SuiteDefinition, variant: Variant) -> str:
    """Return the digest (hex) of what a variant evaluates, with its code.

    Where cases name their targets, all targets of the suite count.
    """
    target = variant_target(definition, variant)
    code = definition.code if definition.executed_code is None else definition.executed_code
    if target is not None or not definition.targets:
        return target_identity(target, variant, code).hex()
    digest = hashlib.sha256()
    for name in sorted(definition.targets):
        digest.update(name.encode())
        digest.update(target_identity(definition.targets[name], variant, code))
    return digest.hexdigest()


def read_plan_digests(run: StoredRun, plan: Plan) -> tuple[str, bool]:
    """Return the digest (hex) of the planned cases, and whether an assertion may ask a judge."""
    return digest_cases(run.plan_part(number) for number in range(plan.parts))


def digest_cases(parts: Iterable[bytes]) -> tuple[str, bool]:
    """Return the digest (hex) of the cases in a plan's parts, and whether one may ask a judge."""
    digest, judged = hashlib.sha256(), False
    for part in parts:
        block = decompress_frame(part)
        digest.update(block)
        head = orjson.loads(block.partition(b"\n")[0])
        judged = judged or any(check in JUDGED for check in _checks(head))
    return digest.hexdigest(), judged


def judges_sha256(definition: SuiteDefinition, *, judged: bool) -> str | None:
    """Return the digest (hex) of the targets that may judge; None where nothing is judged.

    What assertions say of their judges (prompt, votes, thresholds) is part of the cases.
    """
    if not judged:
        return None
    digest = hashlib.sha256(orjson.dumps([definition.judge, definition.require_calibrated]))
    for name in sorted(_judge_names(definition)):
        judge = definition.targets.get(name)
        digest.update(name.encode())
        digest.update(target_identity(judge, DEFAULT_VARIANT, definition.code))
    return digest.hexdigest()


def _judge_names(definition: SuiteDefinition) -> set[str]:
    """Return the suite's judge, those of its targets, and every target that no variant runs."""
    evaluated = {variant.target for variant in definition.variants} | {definition.default_target}
    names = {name for name in definition.targets if name not in evaluated}
    graders = (target.options.get("grader_target") for target in definition.targets.values())
    named = {name for name in (definition.judge, *graders) if isinstance(name, str)}
    return names | named


def _checks(head: Mapping[str, Any]) -> Iterator[str]:
    """Yield the checks of a block's assertions (`planning.codec`): the second field of each."""
    return (str(assertion[1]) for assertion in head["assertions"])
