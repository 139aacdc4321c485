"""What tells two runs of a suite apart: digests of its targets, cases and judges; what changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from evalcore.model.identity import JUDGED, target_identity
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
    digest = hashlib.sha256(orjson.dumps([definition.judge, False]))
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


_COMMIT_DIGITS: Final = 7


class Fingerprint(NamedTuple):
    """What a variant of a run was made from; the columns of `runs` of these names."""

    target: str | None
    model: str | None
    target_sha256: str | None
    cases_sha256: str | None
    judges_sha256: str | None
    suite_sha256: str | None
    engine: str | None
    git_commit: str | None
    git_dirty: bool | None


def describe_changes(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return what changed, each in a few words; nothing where both are the same.

    What only one of the runs knows (a commit, say) is no change.
    """
    changes = [
        *_named("target", before.target, after.target),
        *_named("model", before.model, after.model),
    ]
    if not changes and _differ(before.target_sha256, after.target_sha256):
        changes.append("prompt, settings or code of the target")
    if _differ(before.cases_sha256, after.cases_sha256):
        changes.append("cases")
    if before.judges_sha256 != after.judges_sha256:
        changes.append("judges")
    if not changes and _differ(before.suite_sha256, after.suite_sha256):
        changes.append("suite file")
    changes += _named("evalcore", before.engine, after.engine)
    changes += _named("commit", _commit(before), _commit(after))
    return tuple(changes)


def _named(what: str, before: str | None, after: str | None) -> list[str]:
    return [f"{what} {before} → {after}"] if _differ(before, after) else []


def _differ(before: str | None, after: str | None) -> bool:
    return before is not None and after is not None and before != after


def _commit(run: Fingerprint) -> str | None:
    if run.git_commit is None:
        return None
    return run.git_commit[:_COMMIT_DIGITS] + ("+" if run.git_dirty else "")


def run_fingerprints(run: StoredRun) -> dict[str, Fingerprint]:
    """Return the fingerprint of each variant of a run, by the variant's id."""
    manifest, definition = run.manifest(), run.definition
    parts = (run.plan_part(number) for number in range(manifest.plan.parts))
    cases_sha256, judged = digest_cases(parts)
    # A run that stops early has its cases in a random order: the digest is that of the suite's.
    order = manifest.settings.get("order") or {}
    cases_sha256 = order.get("cases_sha256", cases_sha256)
    git = manifest.settings.get("git") or {}
    fingerprints = {}
    for variant in definition.variants:
        fingerprints[variant.id] = Fingerprint(
            target=variant.target or definition.default_target,
            model=variant_model(definition, variant),
            target_sha256=target_sha256(definition, variant),
            cases_sha256=cases_sha256,
            judges_sha256=judges_sha256(definition, judged=judged),
            suite_sha256=manifest.source.get("sha256"),
            engine=manifest.engine.get("evalcore"),
            git_commit=git.get("commit"),
            git_dirty=git.get("dirty"),
        )
    return fingerprints
