"""What must not be kept of an exchange: keys, authorisation, and what the configuration names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from evalcore.errors import SettingsError
from evalcore.jsonvalues import texts_in
from evalcore.model.exchange import Endpoint, Reply, Request, StreamEvent
from evalcore.redaction.names import AUTHORISING_FIELD, SECRET_FIELD, SECRET_HEADER
from evalcore.redaction.redactor import PROCESS, REDACTED, Redactor


class Redaction:
    """What is kept of an exchange: no secret that the redactor or the endpoint knows."""

    def __init__(self, redactor: Redactor = PROCESS) -> None:
        self._redactor = redactor

    @classmethod
    def of_process(cls, environment: Mapping[str, str], patterns: Iterable[str] = ()) -> Redaction:
        """Return that of the process, which learns its variables and these patterns.

        Raises `SettingsError` for a pattern that is no regular expression.
        """
        try:
            PROCESS.learn((), patterns)
        except ValueError as error:
            raise SettingsError(f"redact_patterns: {error}") from None
        PROCESS.learn_environment(environment)
        return cls()

    def knowing(self, endpoint: Endpoint) -> Redaction:
        """Return one that also knows the key and the headers of this endpoint."""
        values = (endpoint.api_key or "", *endpoint.headers.values(), *endpoint.values.values())
        return Redaction(self._redactor.knowing(values))

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redactor.reply(text)

    def value(self, value: Any) -> Any:
        """Return a JSON value (mappings, lists, texts) without secrets, names of members too."""
        return self._redactor.value(value, self.text)

    def events(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """Return streamed events without secrets.

        A secret that is spread over events takes the data of all of them with it; their numbers
        and times stay.
        """
        clean = list(events)
        data = self._redactor.json_value([event.data for event in clean], self.text)
        streams: dict[tuple[str | int, ...], list[str]] = {}
        for member in data:
            for path, text in texts_in(member):
                streams.setdefault(path, []).append(text)
        if any(self.text(whole) != whole for whole in map("".join, streams.values())):
            data = [REDACTED] * len(clean)
        return [event._replace(data=own) for event, own in zip(clean, data, strict=True)]

    def reply(self, reply: Reply) -> dict[str, Any]:
        """Return the parts of a reply that may hold a secret, without secrets."""
        return {
            "text": self.text(reply.text),
            "tool_calls": self.value(reply.tool_calls),
            "events": [event._asdict() for event in self.events(reply.events)],
        }

    def identity(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request's identity without secrets, as it is kept and shown."""
        clean = dict(self.value(identity))
        if clean.get("protocol") == "http":
            clean["parameters"] = _without_fields(clean["parameters"])
            _hide_keys(clean["parameters"], SECRET_FIELD)
        return clean


def named_identity(request: Request) -> dict[str, Any]:
    """Return the identity that names a request's recording: what `request_digest` is given.

    Only what authorises a request over HTTP is left out (headers, user and keys in the URL), so
    that another key finds the recording. The rest is named as it is: two questions that differ in
    something secret are two questions, and a digest does not tell it.
    """
    identity: dict[str, Any] = _plain(request.identity())
    if identity["protocol"] == "http":
        _hide_keys(identity["parameters"], AUTHORISING_FIELD)
    return identity


def _plain(value: Any) -> Any:
    """Return a JSON value with dicts and lists in place of other mappings and tuples."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _hide_keys(parameters: dict[str, Any], secret: re.Pattern[str]) -> None:
    """Cover the headers that authorise, and the query parameters of these names."""
    headers, url = parameters.get("headers"), parameters.get("url")
    if isinstance(headers, dict):
        parameters["headers"] = {
            name: REDACTED if SECRET_HEADER.search(name) else value
            for name, value in headers.items()
        }
    if isinstance(url, str):
        parameters["url"] = _without_keys(url, secret)


def _without_fields(value: Any) -> Any:
    """Return JSON without the values of fields that hold secrets."""
    if isinstance(value, dict):
        return {
            name: REDACTED
            if isinstance(inner, str) and SECRET_FIELD.fullmatch(name)
            else _without_fields(inner)
            for name, inner in value.items()
        }
    return [_without_fields(inner) for inner in value] if isinstance(value, list) else value


def _without_keys(url: str, secret: re.Pattern[str]) -> str:
    """Return a URL without its user and the values of query parameters of these names."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return url
    host = parts.netloc.rpartition("@")[2]
    if any(secret.fullmatch(name) for name, _ in query):
        covered = [(n, REDACTED if secret.fullmatch(n) else v) for n, v in query]
        return urlunsplit(parts._replace(netloc=host, query=urlencode(covered)))
    return url if host == parts.netloc else urlunsplit(parts._replace(netloc=host))
