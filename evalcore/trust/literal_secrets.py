"""Literal secrets in what a request is made of: a plan would store them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from evalcore.redaction.names import SECRET_FIELD, SECRET_HEADER, is_key, is_telling
from evalcore.redaction.redactor import PROCESS
from evalcore.trust.variables import REFERENCE

_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest)\s+", re.IGNORECASE)
# A member of JSON, a field of a form and an XML element in a body that is text.
_FIELD_OF_TEXT: Final = re.compile(
    r"\"(?P<member>[\w.-]+)\"\s*:\s*\"(?P<json>(?:[^\"\\]|\\.)*)\""
    r"|(?:^|(?<=&))(?P<field>[\w.-]+)=(?P<form>[^&\s]*)"
    r"|<(?P<element>[\w.-]+)>(?P<xml>[^<]*)</(?P=element)>"
)
# In what a function is given, these may name anything.
_AMBIGUOUS: Final = frozenset({"key", "auth", "sig", "signature", "token"})
_ADDRESSES: Final = ("url", "base_url", "baseUrl")
_BODIES: Final = ("body", "parameters")
_HEADER_OF_COMMAND: Final = re.compile(r"\b([\w-]+):\s+((?:\w+\s+)?[^\s\"'$`]+)(?=[\s\"']|$)")
_WEB_ADDRESS: Final = re.compile(r"https?://[^\s\"'`\\]+")

Path = tuple[str | int, ...]


class LiteralSecret(NamedTuple):
    """Where a secret is written, as a path, and what holds it, such as `header 'X-Key'`."""

    path: Path
    holder: str

    def message(self, reference: str = "${{ NAME }}") -> str:
        """Return the mistake; a reference to a variable is what would work."""
        how = f"write it as {reference} and set that variable"
        return f"{self.holder} holds a secret, which the plan would store; {how}"


class _Search(NamedTuple):
    """Looks for secrets, but not in `variable_values`, for which references stood.

    What stands under `untelling` names is secret only if it looks like a key.
    """

    variable_values: Collection[str] = ()
    untelling: Collection[str] = ()

    def is_secret(self, value: Any, *, named: bool = True) -> bool:
        """Whether a text holds more than references, placeholders and the name of a scheme.

        Where no name says that a secret is meant (`named`), it has to look like a key.
        """
        if not isinstance(value, str):
            return False
        text = REFERENCE.sub(lambda match: match[2] or "", value)
        for value_of_variable in self.variable_values:
            text = text.replace(value_of_variable, "")
        literal = _SCHEME.sub("", _PLACEHOLDER.sub("", text)).strip()
        if not (is_telling(literal) if named else is_key(text.strip())):
            return False
        PROCESS.learn([value, literal])
        return True

    def headers(self, headers: Mapping[Any, Any], path: Path) -> Iterator[LiteralSecret]:
        for name, value in headers.items():
            named = SECRET_HEADER.search(str(name)) is not None
            if self.is_secret(value, named=named):
                yield LiteralSecret((*path, str(name)), f"header '{name}'")

    def address(self, url: str, path: Path, *, login: bool = True) -> Iterator[LiteralSecret]:
        # A default is written in the file; a placeholder may have what separates parts of an URL.
        text = _PLACEHOLDER.sub("{}", REFERENCE.sub(lambda match: match[2] or "", url))
        try:
            parts = urlsplit(text)
            password, user = parts.password or "", parts.username or ""
        except ValueError:
            return
        if login and (self.is_secret(unquote(password)) or (password and "{}" not in password)):
            yield LiteralSecret(path, f"{path[-1]}: the password")
        for name, value in parse_qsl(parts.query):
            if self.is_secret(value, named=self._is_name(name)):
                yield LiteralSecret(path, f"{path[-1]}: '{name}'")
        if any(self.is_secret(part, named=False) for part in (user, *parts.path.split("/"))):
            yield LiteralSecret(path, f"{path[-1]}")

    def value(self, value: Any, path: Path) -> Iterator[LiteralSecret]:
        """Search any JSON value, such as a body."""
        if isinstance(value, Mapping):
            for name, member in value.items():
                if self._is_name(str(name)) and self.is_secret(member):
                    yield LiteralSecret((*path, str(name)), f"'{name}'")
                else:
                    yield from self.value(member, (*path, str(name)))
        elif isinstance(value, list | tuple):
            for number, member in enumerate(value):
                yield from self.value(member, (*path, number))
        elif isinstance(value, str):
            yield from self._text(value, path)

    def _text(self, text: str, path: Path) -> Iterator[LiteralSecret]:
        if self.is_secret(text, named=False):
            yield LiteralSecret(path, f"'{path[-1]}'")
            return
        for match in _FIELD_OF_TEXT.finditer(text):
            name = match["member"] or match["field"] or match["element"]
            written = match["json"] or unquote(match["form"] or "") or match["xml"]
            if self._is_name(name) and self.is_secret(written):
                yield LiteralSecret(path, f"'{name}'")

    def command(self, command: Any, path: Path) -> Iterator[LiteralSecret]:
        """Search a command for addresses, keys, headers and `--api-key=…`, but not for `$KEY`."""
        words = command if isinstance(command, list) else [command]
        for text in filter(lambda word: isinstance(word, str), words):
            for match in _WEB_ADDRESS.finditer(text):
                yield from self.address(match[0], path)
            for match in _HEADER_OF_COMMAND.finditer(text):
                for literal in self.headers({match[1]: match[2]}, path):
                    yield literal._replace(path=path)
            for word in text.split():
                name, _, value = word.strip("\"';,").lstrip("-").partition("=")
                named = name.lower() not in _AMBIGUOUS and self._is_name(name)
                for part in (name, value.strip("\"'")):
                    is_value = named and part != name
                    if not part.startswith(("$", "`")) and self.is_secret(part, named=is_value):
                        yield LiteralSecret(path, f"'{name}'" if is_value else "the command")

    def _is_name(self, name: str) -> bool:
        return SECRET_FIELD.fullmatch(name) is not None and name.lower() not in self.untelling


def literal_secrets(
    headers: Mapping[Any, Any] | None, url: str, bodies: Mapping[str, Any]
) -> Iterator[LiteralSecret]:
    """Yield a mistake in a request for each literal where a key belongs; bodies have names.

    The process covers what it yields, so that no message shows it.
    """
    search = _Search()
    yield from search.headers(headers or {}, ("headers",))
    yield from search.address(url, ("url",))
    yield from search.value(bodies, ())


def literals_of_target(
    options: Mapping[str, Any], variable_values: Iterable[str] = ()
) -> Iterator[LiteralSecret]:
    """Yield the same for a target's addresses, body, parameters and commands, and a `config`.

    `api_key`, `headers` and `env` are `secret_options`, and no address of a target may have a
    password. `variable_values` are what references may have stood for.
    """
    search = _Search(sorted(filter(is_telling, variable_values), key=len, reverse=True))
    yield from _of_request(options, search, ())
    yield from search.command(options.get("command"), ("command",))
    check = options.get("healthcheck")
    if isinstance(check, Mapping):
        yield from search.command(check.get("command"), ("healthcheck", "command"))
        if isinstance(check.get("url"), str):
            yield from search.address(check["url"], ("healthcheck", "url"))
    config = options.get("config")
    if isinstance(config, Mapping):
        yield from _of_request(config, search, ("config",), login=True)
        if isinstance(config.get("headers"), Mapping):
            yield from search.headers(config["headers"], ("config", "headers"))
        others = {key: config[key] for key in config.keys() - {*_ADDRESSES, *_BODIES, "headers"}}
        yield from search._replace(untelling=_AMBIGUOUS).value(others, ("config",))


def _of_request(
    options: Mapping[str, Any], search: _Search, path: Path, *, login: bool = False
) -> Iterator[LiteralSecret]:
    for name in _ADDRESSES:
        if isinstance(options.get(name), str):
            yield from search.address(options[name], (*path, name), login=login)
    for name in _BODIES:
        yield from search.value(options.get(name), (*path, name))


def literals_of_script(value: Any, path: Path = ()) -> Iterator[LiteralSecret]:
    """Yield the same for a script or its suite: calls, tools, addresses and headers in data.

    Some come twice.
    """
    if isinstance(value, str):
        in_code = path[-1:] == ("starlark",)
        if in_code or _WEB_ADDRESS.fullmatch(value.strip()):
            for match in _WEB_ADDRESS.finditer(value):
                yield from _Search().address(match[0], path)
    elif isinstance(value, list):
        for number, member in enumerate(value):
            yield from literals_of_script(member, (*path, number))
    elif isinstance(value, Mapping):
        for literal in _of_part(value):
            yield literal._replace(path=(*path, *literal.path))
        for name, member in value.items():
            yield from literals_of_script(member, (*path, name))


def _of_part(part: Mapping[Any, Any]) -> Iterator[LiteralSecret]:
    """Yield literals in the headers of a part of a script, in a call and in a tool's `config`."""
    if isinstance(part.get("headers"), Mapping):
        yield from _Search().headers(part["headers"], ("headers",))
    if "call" in part and isinstance(part.get("params"), Mapping):
        for literal in literals_of_target(part["params"]):
            yield literal._replace(path=("params", *literal.path))
    if "import_tool" in part:
        yield from literals_of_target({"config": part.get("config")})
