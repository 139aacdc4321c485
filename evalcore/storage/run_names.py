"""How commands name a run: by its id, the beginning of one, `latest`, `last-pass`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from evalcore.errors import RunNotFoundError, UsageError
from evalcore.model.run import Decision, Manifest, State
from evalcore.storage.layout import (
    NameKey,
    RunKeys,
    run_created_at,
    suite_key,
)
from evalcore.storage.runs import (
    CALIBRATION,
    StoredRun,
    UnreadableRun,
    find_run,
    list_all_runs,
    partial_reasons,
    stored_runs,
)
from evalcore.storage.store import ObjectStore

LATEST: Final = "latest"
NAMES_HELP: Final = (
    "an id or the beginning of one, `latest` (the newest run), `last` (the newest completed run of "
    "the whole suite), `last-pass` or `main` (the newest such run of that branch); "
    "SUITE/ before it chooses among the runs of a suite"
)
LAST: Final = "last"
_ID_START: Final = re.compile(r"\d{4,8}|\d{8}T\d{0,6}|\d{8}T\d{6}Z|\d{8}T\d{6}Z-[0-9a-f]{0,6}")
_MOST_CANDIDATES: Final = 10

Listed = Manifest | UnreadableRun


def choose_run(
    store: ObjectStore,
    name: str,
    *,
    suite: str | None = None,
    before: Manifest | None = None,
) -> StoredRun:
    """Return the run that `name` means (`NAMES_HELP`).

    A name that is no id is looked for among the runs of `suite` and, with `before`, among those
    older than it. Raises `RunNotFoundError` if there is none, `UsageError` with the candidates for
    the beginning of several ids.
    """
    if run_created_at(name) is not None:
        return find_run(store, name)
    of_suite, name = _split(name)
    suite = of_suite or suite
    if name not in _NAMES:
        return _of_ids(store, name, suite)
    matches, _ = _NAMES[name]
    limit = None if before is None else (before.created_at, before.id)
    for listed in list_all_runs(store, suite):
        if isinstance(listed, UnreadableRun):
            # The newest run is the newest one, also if it is damaged.
            if name == LATEST and limit is None:
                return StoredRun(store, RunKeys(NameKey(listed.suite), listed.id))
        elif (limit is None or (listed.created_at, listed.id) < limit) and matches(listed):
            run = StoredRun(store, RunKeys(suite_key(listed.suite), listed.id))
            if CALIBRATION in listed.settings and suite is None:
                continue
            if name == LATEST or not partial_reasons(listed):
                return run
    raise RunNotFoundError(_no_match(store, name, suite, before))


def is_run_name(name: str) -> bool:
    """Whether `choose_run` takes the text for a name of a run."""
    _, short = _split(name)
    return short in _NAMES or _ID_START.fullmatch(short) is not None


def choose_two(store: ObjectStore, earlier: str, later: str) -> tuple[StoredRun, StoredRun]:
    """Return two runs to compare; a name that is no id means a run of the other one's suite.

    An earlier one that is named by what it is (`last`) is older than the later one.
    """
    if _is_id(earlier):
        first = choose_run(store, earlier)
        suite = None if _is_id(later) else first.manifest().suite
        return first, choose_run(store, later, suite=suite)
    second = choose_run(store, later)
    manifest = second.manifest()
    return choose_run(store, earlier, suite=manifest.suite, before=manifest), second


def _is_id(name: str) -> bool:
    """Whether a name is (the beginning of) an id, of whichever suite."""
    return _split(name)[1] not in _NAMES


def _split(name: str) -> tuple[str | None, str]:
    """Return the suite that a name begins with, if it does, and the rest."""
    suite, _, short = name.rpartition("/")
    return suite or None, short


def _is_completed(run: Manifest) -> bool:
    return run.state is State.COMPLETED


def _is_of_main(run: Manifest) -> bool:
    git = run.settings.get("git")
    return _is_completed(run) and isinstance(git, dict) and git.get("branch") == "main"


# Which runs a name means, the newest of them, and what there is none of.
_NAMES: Final[Mapping[str, tuple[Callable[[Manifest], bool], str]]] = {
    LATEST: (lambda _: True, "no run"),
    LAST: (_is_completed, "no completed run of a whole suite"),
    "last-pass": (lambda run: run.decision == Decision.PASS, "no run that passed"),
    "main": (_is_of_main, "no completed run of branch 'main'"),
}


def _of_ids(store: ObjectStore, name: str, suite: str | None) -> StoredRun:
    """Return the run whose id begins so."""
    is_start = _ID_START.fullmatch(name) is not None
    keys = stored_runs(store, suite) if is_start else iter(())
    matching = [each for each in keys if each.run_id.startswith(name)]
    # A folder without a manifest is what is left of a run that was deleted.
    candidates = [keys for keys in matching[: _MOST_CANDIDATES + 1] if store.exists(keys.manifest)]
    if not candidates:
        hint = ""
        if next(stored_runs(store, name), None) is not None:
            hint = f"; '{name}' is a suite: '{name}/last' is its newest completed run"
        raise RunNotFoundError(
            f"no run {name!r} in {store.url}; `evalcore runs list` shows them{hint}"
        )
    if len(candidates) > 1:
        listed = ", ".join(keys.run_id for keys in candidates[:_MOST_CANDIDATES])
        more = ", …" if len(matching) > _MOST_CANDIDATES else ""
        raise UsageError(
            f"{name!r} is the beginning of {len(matching)} runs: {listed}{more}; write more of one"
        )
    return StoredRun(store, candidates[0])


def _no_match(store: ObjectStore, name: str, suite: str | None, before: Manifest | None) -> str:
    of = "" if suite is None else f" of suite '{suite}'"
    older = "" if before is None else f" before {before.id}"
    hint = "; `last` is the newest completed run" if name == "last-pass" else ""
    if name != LATEST:
        hint += "; runs of a part of a suite (--case, items in error) do not count"
    return f"{_NAMES[name][1]}{of}{older} in {store.url}; `evalcore runs list` shows them{hint}"
