"""Why a target is executed again although earlier runs of the suite have evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from evalcore.model.code_names import code_identity
from evalcore.model.identity import target_code, target_identity
from evalcore.model.suite import SuiteDefinition
from evalcore.model.target import DEFAULT_VARIANT, Target
from evalcore.storage.runs import StoredRun

_MOST_FILES = 3


def target_changes(definition: SuiteDefinition, earlier: StoredRun) -> Iterator[str]:
    """Yield a sentence for each target that is not what it was in an earlier run, by name."""
    before = earlier.definition
    for name, target in sorted(definition.targets.items()):
        former = before.targets.get(name)
        if former is None:
            continue
        if _bare_identity(target) != _bare_identity(former):
            yield f"the definition of target '{name}' changed since run {earlier.run_id}"
            continue
        names = tuple(target_code(target, DEFAULT_VARIANT))
        if code_identity(names, definition.code) != code_identity(names, before.code):
            changed = _changed_files(names, definition, earlier.manifest().created_at)
            yield (
                f"the code of target '{name}' changed since run {earlier.run_id}: "
                f"{changed or 'it names a file that is new or gone'}"
            )


def _bare_identity(target: Target) -> bytes:
    return target_identity(target, DEFAULT_VARIANT)


def _changed_files(names: Iterable[str], definition: SuiteDefinition, since: str) -> str:
    """Return the files of the code that were written after a time, as far as they fit a line."""
    from evalcore.trust.code_digests import CodeDigests

    folder = Path(definition.source.folder).resolve()
    digests, moment = CodeDigests(folder), datetime.fromisoformat(since).timestamp()
    files = sorted({path for name in names for path in digests.files(name)})
    changed = [path for path in files if _written_at(path) >= moment]
    line = ", ".join(
        str(path.relative_to(folder) if path.is_relative_to(folder) else path)
        for path in changed[:_MOST_FILES]
    )
    more = len(changed) - _MOST_FILES
    return f"{line} and {more} more" if more > 0 else line


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
