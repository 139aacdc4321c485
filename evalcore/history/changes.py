"""What differs between two runs of a suite, by the fingerprints in the table `runs`."""

from __future__ import annotations

from typing import Final, NamedTuple

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
