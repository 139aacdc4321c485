"""What a process may execute of a plan that stands in a store (docs/reference/trust.md).

A plan that one of this process's keys has signed may do what the suite it was made from may. Any
other one may do what this process's own settings allow, and is refused as a whole if it asks for
more. In both cases the process executes what it has looked at: the run is sealed.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evalcore.analytics.integrity import require_planned
from evalcore.errors import (
    Damage,
    DamagedRunError,
    NotAllowedError,
    UsageError,
)
from evalcore.model.assertion import Assertion
from evalcore.model.run import Manifest
from evalcore.model.suite import Case, SuiteDefinition
from evalcore.settings import Settings
from evalcore.storage.address import folder_of_store
from evalcore.storage.manifests import (
    Seal,
    Signature,
    digest_of,
    frozen_fields,
    read_signature,
    signature_damage,
)
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import LOCAL, ImportPolicy
from evalcore.trust.network import is_allowed_address
from evalcore.trust.plan_keys import PLAN_KEY, PlanKeys, key_id, read_plan_keys, signature_of

_REMEDY = f"give this process the {PLAN_KEY} of the one that planned it, or run the suite again"
_LISTED = 5
_ELSEWHERE = "does not lie below {}, or lies in the store there"
_BASE_URLS = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL")


class Accepted(NamedTuple):
    """A run whose plan this process executes, and what that plan may import and start."""

    run: StoredRun
    imports: ImportPolicy


class AcceptingWorker(NamedTuple):
    """What the executing process allows: its folder, its settings, what its user added to them."""

    folder: Path
    settings: Settings
    imports: tuple[str, ...] = ()
    environment: Mapping[str, str] = os.environ

    @property
    def policy(self) -> ImportPolicy:
        """What a plan may import and start that grants nothing itself."""
        allowed = (*self.settings.allow_imports, *self.imports)
        return ImportPolicy(allowed=allowed, commands=self.settings.allow_commands)


def accept_plan(run: StoredRun, worker: AcceptingWorker) -> Accepted:
    """Return the run as this process may execute it.

    Raises `NotAllowedError` if it may not, `DamagedRunError` if the plan is not what was signed,
    `UnplannedRunError` if it has none.
    """
    keys = read_plan_keys(worker.environment)
    manifest = run.manifest()
    require_planned(manifest)
    seal = read_seal(run, keys, manifest)
    if seal is None:
        return _accept_unsigned(run, manifest, worker)
    run = replace(run, seal=seal)
    folder, own_folder = Path(run.definition.source.folder), worker.folder
    # Only on the user's own machine is the folder surely the one that was meant.
    trusted = keys.of_user or _lies_below(folder, own_folder)
    roots = (folder, own_folder) if trusted else (own_folder,)
    return Accepted(run, replace(worker.policy, roots=roots, commands=True))


def sign_plan(run: StoredRun, seal: Seal, keys: PlanKeys) -> None:
    """Store the seal of a plan that has just been written, signed with the run's own key."""
    key = keys.of_run(run.run_id)
    if key is None:
        return
    signature = signature_of(key, seal.canonical())
    signed = Signature(1, "hmac-sha256", key_id(key), signature, {**seal.manifest}, {**seal.parts})
    data = orjson.dumps(signed, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    run.store.put_if_absent(run.keys.plan_signature, data)


def read_seal(run: StoredRun, keys: PlanKeys, manifest: Manifest) -> Seal | None:
    """Return the seal that one of this process's keys has signed; None if there is none.

    Raises `NotAllowedError` if there is none and `keys` require it, `DamagedRunError` if the
    plan is not what was signed.
    """
    key = keys.of_run(run.run_id)
    signed = read_signature(run.store, run.keys)
    if signed is None or key is None or signed.key != key_id(key):
        if keys.required:
            how = "is not signed" if signed is None or key is None else "is signed with another key"
            raise NotAllowedError(f"the plan of run {run.run_id} {how}: {_REMEDY}")
        return None
    seal = signed.seal
    if not hmac.compare_digest(signed.signature, signature_of(key, seal.canonical())):
        reason = "does not hold: what it lists is not what was signed"
        raise DamagedRunError(run.run_id, (signature_damage(reason),))
    seal.check_manifest(manifest)
    prefix = run.keys.plan_prefix
    names = {info.key.removeprefix(prefix) for info in run.store.list(prefix)}
    seal.check_names(names - {run.keys.plan_signature.removeprefix(prefix)})
    return seal


def refuse_code(suite: SuiteDefinition, cases: Iterable[Case], policy: ImportPolicy) -> None:
    """Raise `NotAllowedError` if a suite asks for code that the policy does not grant."""
    reasons = _reasons(demands_of(suite, cases), policy, None)
    _refuse("the suite asks for what this worker's settings do not allow", reasons)


def _accept_unsigned(run: StoredRun, manifest: Manifest, worker: AcceptingWorker) -> Accepted:
    parts: dict[str, str] = {}
    definition = run.definition
    for info in run.store.list(run.keys.plan_prefix):
        name = info.key.removeprefix(run.keys.plan_prefix)
        parts[name] = digest_of(run.store.get(info.key).data)
    # From now on the plan is what was checked, even if the store changes meanwhile.
    sealed = replace(run, seal=Seal(frozen_fields(manifest), parts))
    if sealed.definition != definition:
        damage = Damage("plan/suite.json", "is being changed")
        raise DamagedRunError(run.run_id, (damage,))
    folder = Path(definition.source.folder)
    is_own = _is_own_place(folder, worker, run)
    reasons = [] if is_own else [f"its folder {folder} {_ELSEWHERE.format(worker.folder)}"]
    demands = demands_of(definition, sealed.all_cases(manifest.plan))
    reasons += _reasons(demands, worker.policy, _own_addresses(worker))
    _refuse(
        f"the plan of run {run.run_id} is not signed with a key of this process ({PLAN_KEY}), so "
        "it may do only what this process's own settings allow",
        reasons,
    )
    return Accepted(sealed, worker.policy)


def _refuse(message: str, reasons: Sequence[str]) -> None:
    """Raise `NotAllowedError` with the message and the first reasons, if there are any."""
    if reasons:
        more = len(reasons) - _LISTED
        listed = "; ".join(reasons[:_LISTED]) + (f"; and {more} more" if more > 0 else "")
        raise NotAllowedError(f"{message}: {listed}")


def _reasons(
    demands: Iterable[Demand], policy: ImportPolicy, addresses: Sequence[str] | None
) -> list[str]:
    """Return why demands are refused, each reason once; without `addresses` any is allowed."""
    found: dict[str, str] = {}
    for demand in demands:
        if (reason := _reason(demand, policy, addresses)) is not None:
            found.setdefault(reason, f"{demand.where}: {reason}")
    return list(found.values())


def _reason(demand: Demand, policy: ImportPolicy, addresses: Sequence[str] | None) -> str | None:
    match demand.kind:
        case DemandKind.COMMAND if not policy.commands:
            return f"{demand.what} starts a program (EVALCORE_ALLOW_COMMANDS=1 allows it)"
        case DemandKind.IMPORT if not policy.allows(demand.what.partition(":")[0]):
            module = demand.what.partition(":")[0]
            return (
                f"module '{module}' of {demand.what} is not on the allow-list "
                "(EVALCORE_ALLOW_IMPORTS, --allow-import); "
                f'`allow_imports = ["{module}"]` in the evalcore.toml of the worker\'s folder '
                "allows it"
            )
        case DemandKind.ADDRESS if addresses is not None:
            if not is_allowed_address(demand.what, addresses):
                # The address may hold a password.
                address = demand.what.rpartition("@")[2]
                return (
                    f"the address {address!r} is none of this process's own "
                    "(EVALCORE_ALLOW_ADDRESSES allows it)"
                )
    return None


def _is_own_place(path: Path, worker: AcceptingWorker, run: StoredRun) -> bool:
    """Whether a file or folder lies below the worker's, and not in the store below that."""
    if not _lies_below(path, worker.folder):
        return False
    store = folder_of_store(run.store.url)
    return store is None or not _lies_below(path, store) or _lies_below(worker.folder, store)


def _lies_below(folder: Path, parent: Path) -> bool:
    return folder.resolve().is_relative_to(parent.resolve())


def _own_addresses(worker: AcceptingWorker) -> tuple[str, ...]:
    """Return the addresses that this process's own configuration names."""
    from evalcore.providers.chat import BASE_URLS

    own = filter(None, map(worker.environment.get, _BASE_URLS))
    return (*BASE_URLS.values(), *worker.settings.allow_addresses, *own)


def source_files_of(run: StoredRun, worker: AcceptingWorker) -> tuple[Path, str | None]:
    """Return the suite's file that a run was made from, and the script of a script suite.

    Raises `UsageError` if the plan is not signed with a key of this process and names a file that
    does not lie below its folder, or a Python file, which is imported to load it.
    """
    seal = read_seal(run, read_plan_keys(worker.environment), run.manifest())
    definition = run.definition if seal is None else replace(run, seal=seal).definition
    source = definition.source
    path = Path(source.folder) / Path(source.path).name
    scripts = [target.options.get("script") for target in definition.targets.values()]
    script = next((name for name in scripts if isinstance(name, str)), None)
    for named in (path, path if script is None else Path(script)):
        reason = "would be imported" if named.suffix == ".py" else _ELSEWHERE.format(worker.folder)
        if seal is None and (named.suffix == ".py" or not _is_own_place(named, worker, run)):
            raise UsageError(
                f"run {run.run_id} says that it was made from {named}, which {reason}, and its "
                "plan is not signed with a key of this process; name the file: "
                f"evalcore regrade {run.run_id} SUITE"
            )
    return path, script


class DemandKind(StrEnum):
    """What is asked for: a program, a Python module, an address."""

    COMMAND = "command"
    IMPORT = "import"
    ADDRESS = "address"


class Demand(NamedTuple):
    """What a plan asks for: `what` is a reference or an address, `where` says who asks."""

    kind: DemandKind
    what: str
    where: str


# Any address: a tool fetches what a statement computes.
ANY_ADDRESS: Final = "*"

_QUIET: Final = frozenset({"fixture", "mock", "echo"})
_PROGRAMS: Final = frozenset({"cli", "command"})
_ADDRESSES: Final = ("url", "base_url", "baseUrl")
_CHECKS: Final = {"code-grader": "a code grader", "custom": "a plug-in"}
_AT_PATH: Final = ("at-path", "at-path-later")
_TOOLS_OF_SCRIPTS: Final = ("evalcore.tools.", "llm_workers.", "mcp:")


def demands_of(definition: SuiteDefinition, cases: Iterable[Case]) -> Iterator[Demand]:
    """Yield what the suite's targets, variants, scorers and gates ask for, then its cases."""
    for name, target in definition.targets.items():
        yield from _of_target(target.kind, target.options, f"target '{name}'")
    for variant in definition.variants:
        where = f"variant '{variant.id}'"
        yield from _of_options(variant.config, where)
        yield from _of_tree(variant.config, where)
    for scorer in definition.scorers:
        yield from _callable_in(scorer.params, f"scorer '{scorer.name}'")
    for gate in definition.policy.gates:
        yield from _callable_in(gate.params, f"gate '{gate.gate}'")
    checked: dict[int, Assertion] = {}
    for case in cases:
        if case.workspace:
            yield Demand(DemandKind.COMMAND, "a workspace", f"case '{case.id}'")
        for assertion in case.assertions:
            # Cases of one part share equal assertions.
            if checked.get(id(assertion)) is not assertion:
                checked[id(assertion)] = assertion
                yield from _of_check(assertion.check, assertion.params, f"case '{case.id}'")


def _of_target(kind: str, options: Mapping[str, Any], where: str) -> Iterator[Demand]:
    nested = [*(options.get("fallback_targets") or ())]
    if kind not in _QUIET:
        if kind in _PROGRAMS:
            yield Demand(DemandKind.COMMAND, "a command", where)
        yield from _of_options(options, where)
        if kind in {"flow", "workflow", "script"}:
            nested += [options.get("target"), *(options.get("providers") or {}).values()]
            # Tools of a script suite, those that stand in its cases too.
            for reference, *_ in options.get("imports") or ():
                yield Demand(DemandKind.IMPORT, reference, where)
            yield from _of_tree(options, where)
    for target in nested:
        if isinstance(target, Mapping) and isinstance(target.get("options"), Mapping):
            yield from _of_target(str(target.get("kind")), target["options"], where)


def _of_options(options: Mapping[str, Any], where: str) -> Iterator[Demand]:
    yield from _callable_in(options, where)
    for name in _ADDRESSES:
        if isinstance(options.get(name), str):
            yield Demand(DemandKind.ADDRESS, options[name], where)


def _callable_in(options: Mapping[str, Any], where: str) -> Iterator[Demand]:
    reference = options.get("callable")
    if isinstance(reference, str) and not reference.startswith(LOCAL):
        yield Demand(DemandKind.IMPORT, reference, where)


def _of_tree(value: Any, where: str) -> Iterator[Demand]:
    """Yield what stands anywhere in the definition of a workflow or of a script."""
    if isinstance(value, Mapping):
        yield from _of_options(value, where)
        yield from _of_tool(value.get("import_tool"), where)
        servers = value.get("mcp")
        if value.get("type") == "code":
            yield Demand(DemandKind.COMMAND, "a block of code", where)
        for server in servers.values() if isinstance(servers, Mapping) else ():
            if isinstance(server, Mapping) and "url" not in server:
                yield Demand(DemandKind.COMMAND, "an MCP server", where)
    elif isinstance(value, list | tuple):
        yield from _of_listed_assertion(value, where)
    yield from _of_members(value, where, _of_tree)


def _of_tool(reference: Any, where: str) -> Iterator[Demand]:
    if not isinstance(reference, str):
        return
    if reference.startswith(_TOOLS_OF_SCRIPTS):
        from evalcore.scripts.builtin_tools import built_in_program

        if built_in_program(reference):
            yield Demand(DemandKind.COMMAND, f"the tool {reference}", where)
        elif "fetch" in reference:
            yield Demand(DemandKind.ADDRESS, ANY_ADDRESS, where)
    elif "." in reference or ":" in reference:
        module, _, symbol = reference.replace(":", ".").rpartition(".")
        yield Demand(DemandKind.IMPORT, f"{module}:{symbol}", where)


def _of_check(check: str, params: Mapping[str, Any], where: str) -> Iterator[Demand]:
    inner, fields = params.get("check"), params.get("params")
    if check in _AT_PATH and isinstance(inner, str) and isinstance(fields, Mapping):
        yield from _of_check(inner, fields, where)
        return
    if check in _CHECKS:
        yield Demand(DemandKind.COMMAND, _CHECKS[check], where)
    if check == "python":
        yield from _callable_in(params, where)
    aggregator = params.get("aggregator")
    if isinstance(aggregator, Mapping) and "command" in aggregator:
        yield Demand(DemandKind.COMMAND, "a program that grades", where)
    yield from _of_inner(params, where)


def _of_inner(value: Any, where: str) -> Iterator[Demand]:
    """Yield what assertions within an assertion ask for."""
    if isinstance(value, list | tuple):
        yield from _of_listed_assertion(value, where)
    yield from _of_members(value, where, _of_inner)


def _of_members(
    value: Any, where: str, of_each: Callable[[Any, str], Iterator[Demand]]
) -> Iterator[Demand]:
    members = value.values() if isinstance(value, Mapping) else value
    for member in members if isinstance(value, Mapping | list | tuple) else ():
        yield from of_each(member, where)


def _of_listed_assertion(value: Any, where: str) -> Iterator[Demand]:
    """Yield what an assertion asks for that stands as a list of its fields."""
    least = Assertion._fields.index("params") + 1
    if len(value) >= least and isinstance(value[1], str) and isinstance(value[least - 1], Mapping):
        yield from _of_check(value[1], value[least - 1], where)
