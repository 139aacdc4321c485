"""What a plan asks of the process that executes it, beyond asking a model: the code it names.

A process that does not trust a plan looks through it before anything is executed. What is not
recognised here is still refused where it would be done (`ImportPolicy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from evalcore.model.assertion import Assertion
from evalcore.model.suite import Case, SuiteDefinition
from evalcore.scripts.builtin_tools import built_in_program
from evalcore.trust.local_objects import LOCAL


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
# A folder of a local model may hold code.
_PROGRAMS: Final = frozenset({"cli", "command", "sentence-transformers"})
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
    for other in options.get("fallback_targets") or ():
        yield from _of_nested(other, where)
    if kind in _QUIET:
        return
    if kind in _PROGRAMS:
        yield Demand(DemandKind.COMMAND, "a command", where)
    yield from _of_options(options, where)
    if kind in {"flow", "workflow", "script"}:
        yield from _of_nested(options.get("target"), where)
        for provider in (options.get("providers") or {}).values():
            yield from _of_nested(provider, where)
        # Tools of a script suite, those that stand in its cases too.
        for reference, *_ in options.get("imports") or ():
            yield Demand(DemandKind.IMPORT, reference, where)
        yield from _of_tree(options, where)


def _of_nested(target: Any, where: str) -> Iterator[Demand]:
    if isinstance(target, Mapping) and isinstance(target.get("kind"), str):
        options = target.get("options")
        if isinstance(options, Mapping):
            yield from _of_target(target["kind"], options, where)


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
        yield from _of_tool(value, where)
        if value.get("type") == "code":
            yield Demand(DemandKind.COMMAND, "a block of code", where)
        yield from _of_soul_tool(value.get("executor"), where)
        servers = value.get("mcp")
        for server in servers.values() if isinstance(servers, Mapping) else ():
            if isinstance(server, Mapping) and "url" not in server:
                yield Demand(DemandKind.COMMAND, "an MCP server", where)
        for member in value.values():
            yield from _of_tree(member, where)
    elif isinstance(value, list | tuple):
        yield from _of_listed_assertion(value, where)
        for member in value:
            yield from _of_tree(member, where)


def _of_soul_tool(executor: object, where: str) -> Iterator[Demand]:
    if executor in ("python", "file_io"):
        yield Demand(DemandKind.COMMAND, f"a tool of a soul ({executor})", where)
    elif executor == "http":
        yield Demand(DemandKind.ADDRESS, ANY_ADDRESS, where)


def _of_tool(tool: Mapping[str, Any], where: str) -> Iterator[Demand]:
    reference = tool.get("import_tool")
    if not isinstance(reference, str):
        return
    if reference.startswith(_TOOLS_OF_SCRIPTS) and built_in_program(reference):
        yield Demand(DemandKind.COMMAND, f"the tool {reference}", where)
    elif "fetch" in reference and reference.startswith(_TOOLS_OF_SCRIPTS):
        yield Demand(DemandKind.ADDRESS, ANY_ADDRESS, where)
    elif not reference.startswith(_TOOLS_OF_SCRIPTS) and ("." in reference or ":" in reference):
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
    yield from _of_members(params, where)


def _of_members(value: Any, where: str) -> Iterator[Demand]:
    """Yield what assertions within an assertion ask for."""
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _of_members(member, where)
    elif isinstance(value, list | tuple):
        yield from _of_listed_assertion(value, where)
        for member in value:
            yield from _of_members(member, where)


def _of_listed_assertion(value: Any, where: str) -> Iterator[Demand]:
    """Yield what an assertion asks for that stands as a list of its fields."""
    least = Assertion._fields.index("params") + 1
    if len(value) >= least and isinstance(value[1], str) and isinstance(value[least - 1], Mapping):
        yield from _of_check(value[1], value[least - 1], where)
