"""Whether the servers that a suite's cases ask can be asked, before the first one is."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from evalcore.errors import EvalError, TargetError, UnreachableServerError, UsageError
from evalcore.model.exchange import Endpoint, ProviderError
from evalcore.model.identity import judge_name, judges_named
from evalcore.model.mode import Mode
from evalcore.model.suite import Case, Suite, SuiteDefinition
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.targets.registry import build
from evalcore.targets.work import AsksServer

# Which targets a suite asks shows in its first cases.
_LOOKED_THROUGH: Final = 1_000
_CONNECT_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}


def check_ready(suite: Suite, *, mode: str, reuse: bool) -> None:
    """Raise for a target or judge that the suite's cases ask and that cannot answer.

    Raises `UsageError` if its key is missing, `UnreachableServerError` if no connection to its
    server is made in 5 s. One connection is tried for each server, and nothing is sent. Targets
    with fallbacks are not looked at, nor any where recordings or earlier runs may have all answers.
    """
    if mode not in (Mode.LIVE, Mode.RECORD) or reuse:
        return
    from evalcore.providers.failures import check_key

    endpoints = list(_endpoints(suite, mode))
    for endpoint in endpoints:
        try:
            check_key(endpoint, endpoint.address)
        except ProviderError as error:
            raise UsageError(f"{error.message}; nothing was executed") from error
    providers: dict[tuple[str, int], str] = {}
    for endpoint in endpoints:
        address = _address_of(endpoint)
        if address is not None:
            providers.setdefault(address, endpoint.provider)
    for address, provider in providers.items():
        _check_reachable(address, provider)


def asked_targets(suite: Suite) -> list[tuple[Target, Variant]]:
    """Return the targets and judges of the suite's first cases, each once with each variant."""
    definition = suite.definition
    targets: dict[tuple[str, str], tuple[Target, Variant]] = {}
    for case in islice(suite.cases, _LOOKED_THROUGH):
        for target, variant in _asked_by(case, definition):
            targets[target.name, variant.id] = target, variant
    return list(targets.values())


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


def _endpoints(suite: Suite, mode: str) -> Iterator[Endpoint]:
    folder = Path(suite.definition.source.folder)
    for target, variant in asked_targets(suite):
        try:
            runnable = build(target, variant, folder=folder)
        except (EvalError, ValueError):  # each item says what is wrong with it
            continue
        if isinstance(runnable, AsksServer):
            try:
                yield runnable.ready_endpoint(mode)
            except TargetError as error:
                raise UsageError(f"{error}; nothing was executed") from error


def _address_of(endpoint: Endpoint) -> tuple[str, int] | None:
    """Return host and port; None where values of a case make them, or a proxy is asked."""
    from evalcore.providers.transport import proxy_for

    try:
        parts = urlsplit(endpoint.address)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not host or port is None or "{" in parts.netloc or proxy_for(endpoint.address):
        return None
    return host, port


def _check_reachable(address: tuple[str, int], provider: str) -> None:
    try:
        socket.create_connection(address, timeout=_CONNECT_S).close()
    except OSError as error:
        raise UnreachableServerError(provider, "{}:{}".format(*address), str(error)) from error
