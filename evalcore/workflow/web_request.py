"""The request of an `http` block or of a tool as the provider `http` takes it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evalcore.model.exchange import Endpoint, Request
from evalcore.redaction.names import SECRET_HEADER
from evalcore.settings import read_settings
from evalcore.trust.variables import REFERENCE


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
