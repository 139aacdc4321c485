"""The requests that `http` blocks send."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from evalcore.model.exchange import Endpoint, Request
from evalcore.redaction.names import SECRET_HEADER
from evalcore.settings import Settings, read_settings
from evalcore.trust.secrets import MARK, REFERENCE, substituted, suite_variables
from evalcore.workflow.context import Context
from evalcore.workflow.events import BlockError
from evalcore.workflow.values import PLACEHOLDER


class RequestTemplate:
    """Fills the texts of one request: `${{ NAME }}` by a variable, placeholders by the context.

    What is filled in is no template of its own.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._not_set: dict[str, str] = {}

    def text(self, written: str, where: str, *, secret: bool = False) -> str:
        """Return a text filled; raise `BlockError` for a variable that may not be read."""
        return substituted(
            written,
            lambda match: self._variable(match, where, secret=secret),
            lambda part: self._context.fill(part, where),
        )

    def body(self, written: Any) -> Any:
        """Return a body filled; a text that is one placeholder stands for the value itself."""
        if isinstance(written, str):
            is_text = MARK in written
            return self.text(written, "body") if is_text else self._context.value(written, "body")
        if isinstance(written, Mapping):
            return {key: self.body(member) for key, member in written.items()}
        if isinstance(written, list):
            return [self.body(member) for member in written]
        return written

    def request(
        self,
        method: str,
        written_url: str,
        headers: Mapping[str, str],
        body: Any,
        timeout_s: float | None,
    ) -> Request:
        """Return the request; headers with secrets or references are no part of the question."""
        url = self._url(written_url)
        filled = {
            name: self.text(value, f"headers.{name}", secret=True)
            for name, value in headers.items()
        }
        secret = {
            name: value
            for name, value in filled.items()
            if SECRET_HEADER.search(name) or MARK in headers[name]
        }
        values = {
            match[0]: self._variable(match, "url", secret=False)
            for match in REFERENCE.finditer(written_url)
        } | self._not_set
        parameters: dict[str, Any] = {
            "method": method.upper(),
            "url": url,
            "headers": {name: value for name, value in filled.items() if name not in secret},
        }
        if body is not None:
            parameters["body"] = body
        of_service = self._context.services.of_service
        return Request(
            endpoint=Endpoint("http", _host(url, values), url, headers=secret, values=values),
            parameters=parameters,
            attempt_timeout_s=timeout_s,
            allowed_addresses=_settings().allow_addresses if of_service else None,
        )

    def _url(self, written: str) -> str:
        """Return the URL; what stands for a placeholder is quoted, but for one that begins the URL.

        References to variables stay; what stands for a placeholder holds none.
        """
        begins = PLACEHOLDER.match(written) is not None

        def filled(match: re.Match[str]) -> str:
            nonlocal begins
            text, is_first, begins = self._context.fill(match[0], "url"), begins, False
            if match[0] in {"{{", "}}"}:
                return text
            return text.replace(MARK, quote(MARK)) if is_first else quote(text, safe="")

        url = substituted(
            written, lambda match: match[0], lambda text: PLACEHOLDER.sub(filled, text)
        )
        if not REFERENCE.match(url) and urlsplit(url).scheme not in {"http", "https"}:
            raise BlockError("url", f"'{url[:200]}' is not an http or https address")
        return url

    def _variable(self, match: re.Match[str], where: str, *, secret: bool) -> str:
        """Return the value of the variable that a match of `REFERENCE` names.

        A secret, or a part of a URL, that is not set stays a reference: a recorded answer needs
        none. Raises `BlockError` for a variable that may not be read, and for another one not set.
        """
        name = match[1]
        value: str | None
        if self._context.services.of_service:
            may_read = name in _settings().readable_names
            value = os.environ.get(name, match[2])
            place = "`readable_names` of the service's settings"
        else:
            variables = suite_variables(self._context.services.folder)
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


def _settings() -> Settings:
    return read_settings(os.environ, Path.cwd())


def _host(url: str, values: Mapping[str, str]) -> str:
    """Return the host of a URL, which may be read from a variable, with what is no secret of it."""
    for reference, value in values.items():
        if url.startswith(reference):
            url = value + url.removeprefix(reference)
    return urlsplit(REFERENCE.sub("x", url)).hostname or "http"
