"""The requests that `http` blocks and tools send."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from evalcore.model.exchange import Endpoint, Request
from evalcore.redaction.names import SECRET_HEADER
from evalcore.settings import read_settings
from evalcore.trust.secrets import MARK, REFERENCE, substituted, suite_variables
from evalcore.workflow.context import EngineServices
from evalcore.workflow.events import BlockError


class RequestTemplate:
    """Fills the texts of one request: `${{ NAME }}` by a variable, the rest by `fill(text, where)`.

    What is filled in is no template of its own.
    """

    def __init__(self, services: EngineServices, fill: Callable[[str, str], str]) -> None:
        self._services = services
        self._fill = fill
        self._not_set: dict[str, str] = {}

    def text(self, written: str, where: str, *, secret: bool = False) -> str:
        """Return a text filled; raise `BlockError` for a variable that may not be read."""
        return substituted(
            written,
            lambda match: self._value(match, where, secret=secret),
            lambda part: self._fill(part, where),
        )

    def url(self, written: str, placeholder: re.Pattern[str]) -> str:
        """Return the URL; what stands for a placeholder is quoted, but for one that begins the URL.

        References to variables stay; what stands for a placeholder holds none.
        """
        begins = placeholder.match(written) is not None

        def filled(match: re.Match[str]) -> str:
            nonlocal begins
            text, is_first, begins = self._fill(match[0], "url"), begins, False
            if match[0] in {"{{", "}}"}:
                return text
            return text.replace(MARK, quote(MARK)) if is_first else quote(text, safe="")

        url = substituted(
            written, lambda match: match[0], lambda text: placeholder.sub(filled, text)
        )
        if not REFERENCE.match(url):
            check_address(url)
        return url

    def request(
        self,
        method: str,
        url: str,
        written_url: str,
        headers: Mapping[str, str] | None,
        body: Any,
        timeout_s: float | None,
    ) -> Request:
        """Return the request; headers with references to variables are no part of the question."""
        written = headers or {}
        filled = {
            name: self.text(value, f"headers.{name}", secret=True)
            for name, value in written.items()
        }
        values = {
            match[0]: self._value(match, "url", secret=False)
            for match in REFERENCE.finditer(written_url)
        }
        return web_request(
            method,
            url,
            headers=filled,
            secret_headers=[name for name, value in written.items() if MARK in value],
            values=values | self._not_set,
            body=body,
            timeout_s=timeout_s,
            public_only=self._services.of_service,
        )

    def _value(self, match: re.Match[str], where: str, *, secret: bool) -> str:
        """Return the value of the variable that a match of `REFERENCE` names.

        A secret, or a part of a URL, that is not set stays a reference: a recorded answer needs
        none. Raises `BlockError` for a variable that may not be read, and for another one not set.
        """
        name = match[1]
        value: str | None
        if self._services.of_service:
            may_read = name in read_settings(os.environ, Path.cwd()).readable_names
            value = os.environ.get(name, match[2])
            place = "`readable_names` of the service's settings"
        else:
            variables = suite_variables(self._services.folder)
            may_read = variables.may_read(name, secret=secret)
            value = variables.value(name, match[2], secret=secret) if may_read else None
            place = "a .env file, or in `readable_names` of evalcore.toml"
        if not may_read:
            message = f"{where}: may not read the environment variable {name}; name it in {place}"
            raise BlockError("secret", message)
        if value is not None:
            return value
        if secret or where == "url":
            self._not_set[match[0]] = match[0]  # it is told when it is sent
            return match[0]
        message = f"{where}: the environment variable {name} is not set"
        raise BlockError("secret", f"{message} in the process that runs the suite")


def check_address(url: str) -> None:
    """Raise `BlockError` unless the URL is one of http or https."""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise BlockError("url", f"'{url[:200]}' is not an http or https address")


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
        allowed_addresses=read_settings(os.environ, Path.cwd()).allow_addresses
        if public_only
        else None,
    )


def _named(url: str, values: Mapping[str, str]) -> str:
    """Return a URL whose host may be read from a variable, with what is no secret of it."""
    for reference, value in values.items():
        if url.startswith(reference):
            return value + url.removeprefix(reference)
    return REFERENCE.sub("x", url)
