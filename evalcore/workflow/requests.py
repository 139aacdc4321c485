"""The requests that `http` blocks and tools send."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from evalcore.model.exchange import Endpoint, Request
from evalcore.redaction.names import SECRET_HEADER
from evalcore.settings import read_settings
from evalcore.trust.variables import REFERENCE, suite_variables
from evalcore.workflow.events import BlockError

if TYPE_CHECKING:
    from evalcore.workflow.context import EngineServices


def reference_value(
    match: re.Match[str], where: str, services: EngineServices, *, secret: bool = False
) -> str:
    """Return the value of the variable that a match of `REFERENCE` names.

    A secret, or a part of a URL, that is not set stays a reference: a recorded answer needs none.
    Raises `BlockError` for a variable that the workflow may not read, and for another one not set.
    """
    name = match[1]
    if services.of_service:
        readable = read_settings(os.environ, Path.cwd()).readable_names
        if name not in readable:
            message = f"{where}: may not read the environment variable {name}; name it in"
            raise BlockError("secret", f"{message} `readable_names` of the service's settings")
        value: str | None = os.environ.get(name, match[2])
    else:
        variables = suite_variables(services.folder)
        if not variables.may_read(name, secret=secret):
            message = f"{where}: may not read the environment variable {name}; name it in a .env"
            raise BlockError("secret", f"{message} file, or in `readable_names` of evalcore.toml")
        value = variables.value(name, match[2], secret=secret)
    if value is None and (secret or where == "url"):
        return match[0]  # it is told when it is sent
    if value is None:
        message = f"{where}: the environment variable {name} is not set"
        raise BlockError("secret", f"{message} in the process that runs the suite")
    return value


def web_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    secret_headers: Collection[str],
    values: Mapping[str, str],
    body: Any = None,
    timeout_s: float | None = None,
    public_only: bool = False,
) -> Request:
    """Return the request; `public_only` says that it reaches public and allowed addresses only.

    `values` are those of the references in `url`. The values of `secret_headers`, and of headers
    with the name of a secret, are no part of the question.
    """
    secret = {
        name: value
        for name, value in headers.items()
        if SECRET_HEADER.search(name) or name in secret_headers
    }
    parameters: dict[str, Any] = {
        "method": method.upper(),
        "url": url,
        "headers": {name: value for name, value in headers.items() if name not in secret},
    }
    if body is not None:
        parameters["body"] = body
    host = urlsplit(_named(url, values)).hostname or "http"
    return Request(
        endpoint=Endpoint("http", host, url, headers=secret, values=values),
        parameters=parameters,
        attempt_timeout_s=timeout_s,
        allowed_addresses=_allowed_addresses() if public_only else None,
    )


def _allowed_addresses() -> tuple[str, ...]:
    return read_settings(os.environ, Path.cwd()).allow_addresses


def _named(url: str, values: Mapping[str, str]) -> str:
    """Return a URL whose host may be read from a variable, with what is no secret of it."""
    for reference, value in values.items():
        if url.startswith(reference):
            return value + url.removeprefix(reference)
    return REFERENCE.sub("x", url)
