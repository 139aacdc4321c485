"""The fingerprints of one run, from its own folder: what `describe_changes` compares."""

from __future__ import annotations

from evalcore.history.changes import Fingerprint
from evalcore.history.fingerprints import (
    judges_sha256,
    read_plan_digests,
    target_sha256,
    variant_model,
)
from evalcore.storage.runs import StoredRun


def run_fingerprints(run: StoredRun) -> dict[str, Fingerprint]:
    """Return the fingerprint of each variant of a run, by the variant's id."""
    manifest, definition = run.manifest(), run.definition
    cases_sha256, judged = read_plan_digests(run, manifest.plan)
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
