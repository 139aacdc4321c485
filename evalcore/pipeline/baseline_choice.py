"""Which earlier run a run is compared with: settled when it is planned."""

from __future__ import annotations

from typing import Any

from evalcore.errors import UsageError
from evalcore.gates.registry import restore_gate
from evalcore.model.run import State
from evalcore.model.suite import SuiteDefinition
from evalcore.storage.baselines import DEFAULT_NAME, get_baseline, list_baselines
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.partial_runs import partial_reasons
from evalcore.storage.run_names import LAST, LATEST, choose_run, is_run_name


def settle_baseline(store: ObjectStore, definition: SuiteDefinition) -> dict[str, Any] | None:
    """Return the earlier run that a run of the suite is compared with: `{name, suite, run}`.

    None if its baseline is a variant, or if none is asked for. The name that the caller gave is
    a named baseline of the suite, else a run's id; raises `UsageError` if it is neither, or if the
    run is a partial one. `latest` means the newest whole run, as `last` does.
    """
    if definition.baseline is not None or definition.dropped_baseline is not None:
        return None
    name = definition.baseline_run
    if name is None:
        if not any(restore_gate(gate).compares for gate in definition.policy.gates):
            return None
        name = DEFAULT_NAME
    pointer = get_baseline(store, definition.name, name)
    if pointer is not None:
        return {"name": name, "suite": pointer.suite, "run": pointer.run}
    if definition.baseline_run is None:
        return None
    if not is_run_name(name):
        raise UsageError(_unknown(store, definition, name))
    run = choose_run(store, _whole(name), suite=definition.name)
    earlier = run.manifest()
    if earlier.state is not State.COMPLETED:
        raise UsageError(
            f"baseline: run {name} is {earlier.state}; only a completed run can be one"
        )
    if earlier.suite != definition.name:
        raise UsageError(
            f"baseline: run {name} is of suite '{earlier.suite}', not of '{definition.name}'; "
            "`evalcore compare` compares runs of any two suites"
        )
    if reasons := partial_reasons(run, earlier):
        raise UsageError(
            f"baseline: run {earlier.id} is of a part of its suite ({'; '.join(reasons)}) and "
            "cannot be a baseline; `last` names the newest whole run, and `evalcore baseline set "
            f"{definition.name} {earlier.id} --force` takes this one as it is"
        )
    return {"name": None, "suite": earlier.suite, "run": earlier.id}


def _whole(name: str) -> str:
    suite, slash, short = name.rpartition("/")
    return f"{suite}{slash}{LAST}" if short == LATEST else name


def _unknown(store: ObjectStore, definition: SuiteDefinition, name: str) -> str:
    variants = ", ".join(variant.id for variant in definition.variants)
    names = [pointer.name for pointer in list_baselines(store, definition.name)]
    named = f"no baseline of that name (known: {', '.join(names) or 'none'})"
    return (
        f"baseline: suite '{definition.name}' has no variant '{name}' (variants: {variants}) and "
        f"{named}, and it is no run's id"
    )
