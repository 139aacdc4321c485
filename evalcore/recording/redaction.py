"""What must not be kept of an exchange: keys, authorisation, and what the configuration names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from evalcore.errors import SettingsError
from evalcore.model.exchange import Endpoint, Reply, Request, StreamEvent
from evalcore.redaction.names import AUTHORISING_FIELD, SECRET_FIELD, SECRET_HEADER
from evalcore.redaction.redactor import PROCESS, REDACTED, Redactor

__all__ = ["REDACTED", "Redaction", "named_identity"]


class Redaction:
    """What is kept of an exchange: no secret that the process or the endpoint knows.

    The process's redactor by default; one of `secrets` and `patterns` alone where they are given.
    Raises `SettingsError` for a pattern that is no regular expression.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        patterns: Iterable[str] = (),
        redactor: Redactor | None = None,
    ) -> None:
        try:
            self._redactor = Redactor(secrets, patterns) if redactor is None else redactor
        except ValueError as error:
            raise SettingsError(f"redact_patterns: {error}") from None

    @classmethod
    def of_process(cls, environment: Mapping[str, str], patterns: Iterable[str] = ()) -> Redaction:
        """Return that of the process, which learns its variables and these patterns."""
        try:
            PROCESS.learn((), patterns)
        except ValueError as error:
            raise SettingsError(f"redact_patterns: {error}") from None
        PROCESS.learn_environment(environment)
        return cls(redactor=PROCESS)

    def knowing(self, endpoint: Endpoint) -> Redaction:
        """Return one that also knows the key and the headers of this endpoint."""
        values = (endpoint.api_key or "", *endpoint.headers.values(), *endpoint.values.values())
        redactor = self._redactor.knowing(values)
        return self if redactor is self._redactor else Redaction(redactor=redactor)

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
        if not self._holds_secret([text for event in clean for _, text in _texts(event.data, ())]):
            return clean if not self._is_spread(clean) else _without_data(clean)
        clean = [event._replace(data=self.value(event.data)) for event in clean]
        return _without_data(clean) if self._is_spread(clean) else clean

    def _is_spread(self, events: Iterable[StreamEvent]) -> bool:
        """Whether the texts in the same place of all events have a secret together."""
        streams: dict[tuple[str, ...], list[str]] = {}
        for event in events:
            for path, text in _texts(event.data, ()):
                streams.setdefault(path, []).append(text)
        return self._holds_secret(["".join(texts) for texts in streams.values()])

    def _holds_secret(self, texts: list[str]) -> bool:
        if self._redactor.has_patterns:
            return any(self.text(text) != text for text in texts)
        # One search instead of one a text: none of our own patterns depends on where a text ends.
        whole = "\n".join(texts)
        return self.text(whole) != whole

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
            clean["parameters"] = _hidden_parameters(clean["parameters"])
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


def _without_data(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    return [event._replace(data=REDACTED) for event in events]


def _texts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts in a JSON value, each with its place in it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*path, str(number)))


def _plain(value: Any) -> Any:
    """Return a JSON value with dicts and lists in place of other mappings and tuples."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _hidden_parameters(parameters: Any) -> Any:
    """Return the parameters of an HTTP request without what stands where a key belongs."""
    hidden = _without_fields(parameters)
    if isinstance(hidden, dict):
        _hide_keys(hidden, SECRET_FIELD)
    return hidden


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
