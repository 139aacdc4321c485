"""Whether the servers that a suite's cases ask can be asked, before the first one is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from evalcore.errors import (
    EvalError,
    SettingsError,
    TargetError,
    UnreachableServerError,
    UsageError,
)
from evalcore.model.exchange import Endpoint, ProviderError
from evalcore.model.identity import judge_name, judges_named
from evalcore.model.run import Mode
from evalcore.model.suite import DEFAULT_VARIANT, Case, SuiteDefinition, Target, Variant
from evalcore.targets.registry import build
from evalcore.targets.work import AsksServers, Runnable
from evalcore.targets.wrappers import WithFallbacks
from evalcore.trust.network import proxy_for, tls_context

# Which targets a suite asks shows in its first cases.
_LOOKED_THROUGH: Final = 1_000
_CONNECT_S: Final = 5.0
_BY_CASE: Final = frozenset({"workflow", "script"})
_PORTS: Final = {"http": 80, "https": 443}


def check_ready(
    definition: SuiteDefinition, cases: Iterable[Case], *, mode: str, reuse: bool = False
) -> None:
    """Raise for a target or judge that the first of these cases ask and that cannot answer.

    Raises `UsageError` if its key is missing, `UnreachableServerError` if no connection to its
    server is made in 5 s. One connection is tried for each server, and nothing is sent. A target
    with fallbacks cannot answer if none of them can. Of workflows and scripts those models count
    that each execution asks. Nothing is looked at where recordings or earlier runs (`reuse`, or
    `cache` of the suite) may have all answers.
    """
    if mode not in (Mode.LIVE, Mode.RECORD) or reuse or definition.reuse:
        return
    runnables = list(_built_targets(definition, islice(cases, _LOOKED_THROUGH)))
    connections: dict[tuple[str, int], EvalError | None] = {}

    def reached(endpoint: Endpoint) -> EvalError | None:
        missing = _missing_key(endpoint)
        if missing is not None:
            return missing
        if endpoint.address.startswith("https:"):
            tls_context()
        address = _address_of(endpoint)
        if address is None:
            return None
        if address not in connections:
            connections[address] = _refused_connection(address, endpoint.provider)
        return connections[address]

    # A missing key costs no time to notice.
    for check in (_missing_key, reached):
        for runnable, case in runnables:
            fault = _fault(runnable, case, mode, check)
            if fault is not None:
                raise fault


def _fault(
    runnable: Runnable, case: Case, mode: str, check: Callable[[Endpoint], EvalError | None]
) -> EvalError | None:
    """Return why a target cannot answer the case, None if nothing is known against it."""
    if isinstance(runnable, WithFallbacks):
        faults = [_fault(target, case, mode, check) for target in runnable.targets]
        return None if None in faults else faults[0]
    if not isinstance(runnable, AsksServers):
        return None
    try:
        faults = [check(endpoint) for endpoint in runnable.ready_endpoints(case, mode)]
    except (TargetError, UsageError, SettingsError) as error:
        return UsageError(f"{error}; nothing was executed")
    except (EvalError, ValueError):  # each item says what is wrong with it
        return None
    return next((fault for fault in faults if fault is not None), None)


def _missing_key(endpoint: Endpoint) -> EvalError | None:
    from evalcore.providers.failures import check_key

    try:
        check_key(endpoint, endpoint.address)
    except ProviderError as error:
        return UsageError(f"{error.message}; nothing was executed")
    return None


def _asked_by(case: Case, definition: SuiteDefinition) -> Iterator[tuple[Target, Variant]]:
    if case.reason_not_executable is not None:
        return
    for variant in definition.variants:
        if case.targets and variant.target not in case.targets:
            continue
        name = case.target or variant.target or definition.default_target
        target = definition.targets.get(name or "")
        if target is not None and case.fixture is None:
            yield target, variant
        for named in judges_named(case.assertions):
            judge = definition.targets.get(judge_name(named, target, definition) or "")
            if judge is not None:
                yield judge, DEFAULT_VARIANT


def _built_targets(
    definition: SuiteDefinition, cases: Iterable[Case]
) -> Iterator[tuple[Runnable, Case]]:
    """Yield targets and judges with the cases that ask them, each server's question once.

    Only of scripts and workflows does it depend on the case which servers are asked.
    """
    folder = Path(definition.source.folder)
    built: dict[tuple[str, str], Runnable | None] = {}
    for case in cases:
        for target, variant in _asked_by(case, definition):
            key = (target.name, variant.id)
            if key in built and target.kind not in _BY_CASE:
                continue
            if key not in built:
                try:
                    built[key] = build(target, variant, folder=folder)
                except (EvalError, ValueError):  # each item says what is wrong with it
                    built[key] = None
            runnable = built[key]
            if runnable is not None:
                yield runnable, case


def _address_of(endpoint: Endpoint) -> tuple[str, int] | None:
    """Return host and port; None where values of a case make them, or a proxy is asked."""
    try:
        parts = urlsplit(endpoint.address)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not host or port is None or "{" in parts.netloc or proxy_for(endpoint.address):
        return None
    return host, port


def _refused_connection(address: tuple[str, int], provider: str) -> EvalError | None:
    try:
        socket.create_connection(address, timeout=_CONNECT_S).close()
    except OSError as error:
        return UnreachableServerError(provider, "{}:{}".format(*address), str(error))
    return None
