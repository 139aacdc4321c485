"""What must not be kept of an exchange: keys, authorisation, and what the configuration names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from evalcore.errors import SettingsError
from evalcore.model.exchange import Endpoint, Reply, Request, StreamEvent

REDACTED: Final = "[redacted]"

# Each has a digit somewhere where prose could look like it otherwise ("Bearer authentication").
_KEYS: Final = (
    r"\b[srp]k-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{6,}",
    r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{8,}",
    r"\b[Bb]earer\s+(?=\S*\d)[A-Za-z0-9._~+/=-]{6,}",
    r"\b[Bb]asic\s+(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2}",
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_)[A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{5,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)
_SECRET_HEADER: Final = re.compile(
    r"authorization|cookie|api[-_]?key|token(?!s)|secret|password|credential|signature", re.I
)
_SECRET_FIELD: Final = re.compile(
    r"(?:x-amz-)?(?:api[-_]?key|access[-_]?token|refresh[-_]?token|security[-_]?token"
    r"|client[-_]?secret|secret|password|signature|credential|authorization)",
    re.I,
)
_SECRET_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.I
)
_SHORTEST_SECRET: Final = 6
_SHORTEST_WORD: Final = 16


class Redaction:
    """Replaces secrets by `[redacted]`: given values, well-known forms of keys, given patterns.

    A value that may be an ordinary word or number (letters only or digits only, under 16
    characters; or under 6 of any kind) is left alone: replacing every `test` hides no secret and
    spoils answers. Raises `SettingsError` for a pattern that is no regular expression.
    """

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._secrets = frozenset(filter(_is_telling, secrets))
        self._patterns = tuple(patterns)
        self._known: dict[tuple[str, ...], Redaction] = {}
        values = sorted(self._secrets, key=lambda secret: (-len(secret), secret))
        own = [re.compile("|".join(map(re.escape, values)))] if values else []
        self._finders = (*own, *_KEY_FINDERS, *map(_compiled, self._patterns))

    @classmethod
    def of_process(cls, environment: Mapping[str, str], patterns: Iterable[str] = ()) -> Redaction:
        """Return the redaction of a process: its variables whose names say that they are secret."""
        named = (value for name, value in environment.items() if _SECRET_VARIABLE.search(name))
        return cls(named, patterns)

    def knowing(self, endpoint: Endpoint) -> Redaction:
        """Return one that also knows the key and the headers of this endpoint."""
        values = (endpoint.api_key or "", *endpoint.headers.values())
        if values not in self._known:
            tokens = (value.rpartition(" ")[2] for value in values)
            self._known[values] = Redaction({*self._secrets, *values, *tokens}, self._patterns)
        return self._known[values]

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for finder in self._finders:
            text = finder.sub(_covered, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value (mappings, lists, texts) without secrets, names of members too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value

    def events(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """Return streamed events without secrets.

        A secret that is spread over events takes the data of all of them with it; their numbers
        and times stay.
        """
        kept = list(events)
        if not self._holds_secret([text for event in kept for _, text in _texts(event.data, ())]):
            return kept if not self._is_spread(kept) else _without_data(kept)
        kept = [event._replace(data=self.value(event.data)) for event in kept]
        return _without_data(kept) if self._is_spread(kept) else kept

    def _is_spread(self, events: Iterable[StreamEvent]) -> bool:
        """Whether the texts in the same place of all events have a secret together."""
        streams: dict[tuple[str, ...], list[str]] = {}
        for event in events:
            for place, text in _texts(event.data, ()):
                streams.setdefault(place, []).append(text)
        return self._holds_secret(["".join(texts) for texts in streams.values()])

    def _holds_secret(self, texts: list[str]) -> bool:
        if self._patterns:
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
        kept = dict(self.value(identity))
        if kept.get("protocol") == "http":
            kept["parameters"] = _without_fields(kept["parameters"])
        return kept


def named_identity(request: Request) -> dict[str, Any]:
    """Return the identity that names a request's recording: what `request_digest` is given.

    Only what authorises a request over HTTP is left out (headers, user and keys in the URL), so
    that another key finds the recording. The rest is named as it is: two questions that differ in
    something secret are two questions, and a digest does not tell it.
    """
    identity: dict[str, Any] = _plain(request.identity())
    parameters = identity["parameters"]
    if identity["protocol"] == "http":
        headers = parameters.get("headers")
        if isinstance(headers, dict):
            parameters["headers"] = {
                name: REDACTED if _SECRET_HEADER.search(name) else value
                for name, value in headers.items()
            }
        if isinstance(parameters.get("url"), str):
            parameters["url"] = _without_keys(parameters["url"])
    return identity


def _is_telling(value: str) -> bool:
    if len(value) >= _SHORTEST_WORD:
        return True
    return len(value) >= _SHORTEST_SECRET and not value.isalpha() and not value.isdigit()


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise SettingsError(
            f"redact_patterns: {pattern!r} is no regular expression: {error}"
        ) from None


_KEY_FINDERS: Final = tuple(map(_compiled, _KEYS))


def _covered(match: re.Match[str]) -> str:
    return REDACTED if match[0] else ""


def _without_data(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    return [event._replace(data=REDACTED) for event in events]


def _texts(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts in a JSON value, each with its place in it."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*place, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*place, str(number)))


def _plain(value: Any) -> Any:
    """Return a JSON value made of dicts and lists, whatever kinds of mapping it came in."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _without_fields(value: Any) -> Any:
    """Return the parameters of an HTTP request without the values of fields that hold secrets."""
    if isinstance(value, dict):
        return {
            name: REDACTED
            if isinstance(inner, str) and _SECRET_FIELD.fullmatch(name)
            else _without_fields(inner)
            for name, inner in value.items()
        }
    return [_without_fields(inner) for inner in value] if isinstance(value, list) else value


def _without_keys(url: str) -> str:
    """Return a URL without its user and the values of query parameters that hold secrets."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return url
    host = parts.netloc.rpartition("@")[2]
    if any(_SECRET_FIELD.fullmatch(name) for name, _ in query):
        covered = [(n, REDACTED if _SECRET_FIELD.fullmatch(n) else v) for n, v in query]
        return urlunsplit(parts._replace(netloc=host, query=urlencode(covered)))
    return url if host == parts.netloc else urlunsplit(parts._replace(netloc=host))
