"""What two runs' suites say differently: targets, variants, policy, gates, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from evalcore.report.view import shown_text
from evalcore.storage.runs import StoredRun
from evalcore.viewer.word_differences import WordDifference, word_difference

MOST_DIFFERENCES: Final = 60
_VALUE_CHARACTERS: Final = 4_000
# What the fingerprint tells already, or what says nothing of behaviour.
_LEFT_OUT: Final = frozenset({"source", "variants", "tags", "datasets", "filtered"})


class SettingDifference(NamedTuple):
    """A field that differs: its path in the suite, and the words that do."""

    path: str
    words: WordDifference


class SettingDifferences(NamedTuple):
    """The first differences; `omitted` counts the others."""

    fields: tuple[SettingDifference, ...]
    omitted: int = 0


def setting_differences(
    baseline: tuple[StoredRun, str], candidate: tuple[StoredRun, str]
) -> SettingDifferences:
    """Return what the suites of two runs say differently of two variants, in the order of paths."""
    was, now = (dict(_fields(_settings(*side))) for side in (baseline, candidate))
    paths = [path for path in sorted(was.keys() | now.keys()) if was.get(path) != now.get(path)]
    fields = tuple(
        SettingDifference(path, word_difference(was.get(path, ""), now.get(path, "")))
        for path in paths[:MOST_DIFFERENCES]
    )
    return SettingDifferences(fields, len(paths) - len(fields))


def _settings(run: StoredRun, variant: str) -> Mapping[str, Any]:
    """Return the planned suite with one variant, sealed secrets sealed."""
    suite = orjson.loads(run.plan_object(run.keys.plan_suite))
    chosen: Mapping[str, Any] = next(
        (each for each in suite.get("variants", ()) if each.get("id") == variant), {}
    )
    own = {name: value for name, value in chosen.items() if name not in {"id", "tags"}}
    compared = {name: value for name, value in suite.items() if name not in _LEFT_OUT}
    return {**compared, "variant": own, "mode": run.manifest().mode}


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of a JSON value as texts, each with its path."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _fields(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _fields(inner, f"{path}[{number}]")
    elif value not in (None, [], {}):
        yield path, (shown_text(value) or "")[:_VALUE_CHARACTERS]
