"""Variables and secrets of a suite: `${{ NAME }}`, options that stay references, literals.

`$${{` is the text `${{`, in every text in which references are read. Only names that the nearest
`.env` file names, `EVAL_*`, and those of the configuration may be read, so that a suite file cannot
read secrets into an output (docs/reference/formats.md). The providers' own keys may be read as
well, but only into secret options.

Secret are `api_key` and the values of `headers` and `env` (docs/decisions/0016), and what a
variable puts into an address (docs/decisions/0022). In the plan stands `${{ NAME }}` as it was
written, or, for a secret that the file holds literally, where it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from evalcore.errors import TargetError
from evalcore.redaction.names import SECRET_FIELD, SECRET_HEADER, is_key, is_telling
from evalcore.redaction.redactor import PROCESS
from evalcore.settings import find_upward, read_settings, repository_root

MARK: Final = "${{"
_ESCAPED: Final = "$${{"
REFERENCE: Final = re.compile(
    r"(?<!\$)\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?::-(.*?))?\s*\}\}", re.DOTALL
)
# Of an escaped reference the end, too: `}}` may mean something around it.
_ESCAPED_OR_REFERENCE: Final = re.compile(
    rf"{REFERENCE.pattern}|\$\$\{{\{{(?:[^{{}}]*\}}\}})?", re.DOTALL
)
PROVIDER_KEYS: Final = frozenset({"ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "OPENAI_API_KEY"})


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that a suite may read: `values` of those that are set, `names` of all.

    `keys` are the providers' keys, for secret options alone. `required` says that what a secret
    option refers to has to be set. `ignored` says why files `.env` do not count.
    """

    values: Mapping[str, str] = field(repr=False)
    names: frozenset[str]
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    required: bool = True
    ignored: tuple[str, ...] = ()

    def may_read(self, name: str, *, secret: bool = False) -> bool:
        """Whether the suite may read a variable of this name (into a secret option)."""
        listed = name in self.names or name.startswith("EVAL_")
        return listed or (secret and name in PROVIDER_KEYS)

    def value(self, name: str, default: str | None = None, *, secret: bool = False) -> str | None:
        """Return what the variable holds, `default` if it is not set."""
        text = self.values.get(name)
        if text is None and secret:
            text = self.keys.get(name)
        return default if text is None else text


def substituted(
    text: str,
    value: Callable[[re.Match[str]], str],
    between: Callable[[str], str] = str,
) -> str:
    """Return a text with `value` of each reference in its place, and `${{` for each `$${{`.

    The text around them is what `between` makes of it.
    """
    parts, end = [], 0
    for match in _ESCAPED_OR_REFERENCE.finditer(text):
        if end < match.start():
            parts.append(between(text[end : match.start()]))
        parts.append(match[0][1:] if match[0].startswith(_ESCAPED) else value(match))
        end = match.end()
    if end < len(text) or not parts:
        parts.append(between(text[end:]))
    return "".join(parts)


def escaped(value: Any) -> Any:
    """Return a value whose texts `substituted` turns back into those of `value`."""
    if isinstance(value, str):
        return value.replace(MARK, _ESCAPED)
    if isinstance(value, Mapping):
        return {key: escaped(member) for key, member in value.items()}
    return [escaped(member) for member in value] if isinstance(value, list | tuple) else value


def nearest_env_file(folder: Path) -> Path | None:
    """Return the nearest `.env` from `folder` up to its repository's root, None without one."""
    return find_upward(folder, (".env",)).path


def ignored_env_files(folder: Path) -> tuple[str, ...]:
    """Return why files `.env` do not count that lie nearer than the one that does."""
    return tuple(map(str, find_upward(folder, (".env",)).refused))


def suite_variables(folder: Path | None) -> Variables:
    """Return what a suite of this folder may read here: its `.env` file and the environment."""
    path = None if folder is None else nearest_env_file(folder)
    names = read_settings(os.environ, Path.cwd()).readable_names
    return variables_from(b"" if path is None else path.read_bytes(), os.environ, names)


def variables_from(
    env_file: bytes, environment: Mapping[str, str], readable_names: Collection[str]
) -> Variables:
    """Return the variables of a `.env` file and of the environment, which wins."""
    from_file = _parsed(env_file)
    names = frozenset(from_file) | frozenset(readable_names)
    readable = {
        name: _readable(value)
        for name, value in environment.items()
        if name in names or name.startswith("EVAL_")
    }
    keys = {name: _readable(environment[name]) for name in PROVIDER_KEYS if name in environment}
    values = {**from_file, **readable}
    # A suite that may read them may repeat them; a variable that both set has two secret values.
    PROCESS.learn_environment({**environment, **keys, **from_file})
    PROCESS.learn_environment(values, values)
    return Variables(values, names, keys)


def _readable(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _parsed(data: bytes) -> dict[str, str]:
    from dotenv import dotenv_values

    lines = StringIO(data.decode("utf-8-sig", "replace"))
    entries = dotenv_values(stream=lines, interpolate=False)
    return {name: value for name, value in entries.items() if value is not None}


_KIND: Final = "secret"
_MAPPINGS: Final = ("headers", "env")
_KEYS: Final = ("api_key", "apiKey")
_ADDRESSES: Final = ("url", "base_url", "baseUrl")
# What a function is given; it may have the same options.
_OPEN: Final = "config"
_LITERAL: Final = re.compile(r"\$\{\{ literal (\[.*\]) \}\}", re.DOTALL)
_SECRET_NAME: Final = re.compile(
    r"auth(?!ors?\b)|cookie|key|token(?!s)|secret|passw|credential|signature", re.IGNORECASE
)


class SecretOption(NamedTuple):
    """A secret option: its path in the options, its text."""

    path: tuple[str, ...]
    text: str

    @property
    def is_literal(self) -> bool:
        """Whether the text itself is the secret, or holds it beside references.

        A header or variable is one if its name or its form says so; `Bearer ${{ NAME }}` holds no
        secret. Addresses and what a function is given are for `literals_of_target`.
        """
        if not self.may_be_literal:
            return False
        if _LITERAL.search(self.text):
            return True  # a suite wrote the engine's own mark
        defaults = any(match[2] for match in REFERENCE.finditer(self.text))
        if self.path[0] in _KEYS:
            return defaults or REFERENCE.sub("", self.text).strip() != ""
        if is_key(REFERENCE.sub(lambda match: match[2] or "", self.text).strip()):
            return True
        if not _is_secret_name(self.path):
            return False
        return defaults or (REFERENCE.search(self.text) is None and self.text != "")

    @property
    def may_be_literal(self) -> bool:
        """Whether what is written here, without a reference, may be a secret."""
        return self.path[0] not in (*_ADDRESSES, _OPEN)

    @property
    def name(self) -> str:
        """The option as messages name it."""
        return ".".join(self.path)


def telling_values(mapping: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values whose names say that they are secret, such as `API_TOKEN`.

    The process covers them from now on.
    """
    values = tuple(value for name, value in mapping.items() if _SECRET_NAME.search(name))
    PROCESS.learn(values)
    return values


def is_secret_path(path: Sequence[str | int]) -> bool:
    """Whether references in the option at this path of a target's options stay references."""
    if path and path[0] == _OPEN:
        return is_secret_path(path[1:])
    if len(path) == 1:
        return path[0] in _KEYS or is_address(path)
    return len(path) == 2 and path[0] in _MAPPINGS


def is_address(path: Sequence[str | int]) -> bool:
    """Whether the option at this path is an address, into which no provider's key may be read."""
    return path[-1] in _ADDRESSES


def secret_options(options: Mapping[str, Any]) -> Iterator[SecretOption]:
    """Yield the secret options that are texts."""
    for name in (*_KEYS, *_ADDRESSES):
        if isinstance(options.get(name), str):
            yield SecretOption((name,), options[name])
    for name in _MAPPINGS:
        inner = options.get(name)
        if isinstance(inner, Mapping):
            for key, value in inner.items():
                if isinstance(key, str) and isinstance(value, str):
                    yield SecretOption((name, key), value)
    inner_options = options.get(_OPEN)
    if isinstance(inner_options, Mapping):
        for option in secret_options({**inner_options, _OPEN: None}):
            yield SecretOption((_OPEN, *option.path), option.text)


def without_literals(
    options: Mapping[str, Any], target: str, file: Path, folder: Path
) -> dict[str, Any]:
    """Return options that may be stored: a literal secret is replaced by where it stands.

    `file` defines the target `target`; it lies in the suite's `folder` or above.
    """
    file_path = os.path.relpath(file.resolve(), folder.resolve())
    stored = dict(options)
    for option in secret_options(options):
        if option.is_literal:
            PROCESS.learn([option.text])
            where = orjson.dumps([file_path, target, *option.path]).decode()
            _put(stored, option.path, f"${{{{ literal {where} }}}}")
    return stored


def resolved(
    options: Mapping[str, Any], folder: Path, variables: Variables
) -> tuple[dict[str, Any], frozenset[tuple[str, ...]]]:
    """Return options with their secrets in them, and the paths where those stand.

    The target's own addresses stay as they are: `address_values` says what stands for the
    references in them. Raise `TargetError` that names the variable or the file that is missing.
    """
    with_secrets = dict(options)
    secret = set()
    for option in secret_options(options):
        if option.path[0] in _ADDRESSES:
            continue
        if MARK in option.text:
            _put(with_secrets, option.path, _text_of(option, folder, variables))
            secret.add(option.path)
        elif option.path[0] in _KEYS:
            secret.add(option.path)
        elif option.is_literal:
            PROCESS.learn([option.text])
    PROCESS.learn(text for path in secret if (text := _text_at(with_secrets, path)))
    return with_secrets, frozenset(secret)


def address_values(
    options: Mapping[str, Any], folder: Path, variables: Variables
) -> dict[str, str]:
    """Return what each `${{ NAME }}` in the target's own addresses stands for; errors as above."""
    return {
        match[0]: variable_text(match, option.name, folder, variables)
        for option in _addresses(options)
        for match in REFERENCE.finditer(option.text)
    }


def known_addresses(options: Mapping[str, Any], variables: Variables) -> Iterator[SecretOption]:
    """Yield the target's own addresses that hold variables, as they are with their values.

    Those with a variable that is not set are left out.
    """

    def value(match: re.Match[str]) -> str | None:
        return variables.value(match[1], match[2])

    for option in _addresses(options):
        if MARK in option.text and None not in map(value, REFERENCE.finditer(option.text)):
            text = REFERENCE.sub(lambda match: value(match) or "", option.text)
            yield option._replace(text=text)


def without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those secret ones that are references; addresses stay."""
    stored = dict(options)
    for option in secret_options(options):
        if MARK in option.text and option.path[0] not in _ADDRESSES:
            _put(stored, option.path, None)
    return stored


def _addresses(options: Mapping[str, Any]) -> Iterator[SecretOption]:
    return (option for option in secret_options(options) if option.path[0] in _ADDRESSES)


def _text_at(options: Mapping[str, Any], path: tuple[str, ...]) -> str:
    """Return a secret that stands at a path now; "" for an option that is none by its name."""
    value: Any = options
    for key in path:
        value = value[key]
    named = path[0] in _KEYS or _is_secret_name(path)
    return value if named and isinstance(value, str) else ""


def _is_secret_name(path: tuple[str, ...]) -> bool:
    """Whether the name of a header or variable says that its value is secret."""
    in_header = path[0] == "headers" and SECRET_HEADER.search(path[-1]) is not None
    return in_header or _SECRET_NAME.search(path[-1]) is not None


def _put(options: dict[str, Any], path: tuple[str, ...], text: str | None) -> None:
    """Put a text at the path, or take away what stands there; mappings on the way are copied."""
    *outer, last = path
    for key in outer:
        options[key] = dict(options[key])
        options = options[key]
    if text is None:
        del options[last]
    else:
        options[last] = text


def _text_of(option: SecretOption, folder: Path, variables: Variables) -> str:
    text = option.text
    literal = _LITERAL.fullmatch(text) if option.may_be_literal else None
    if literal is not None:
        text = _written(literal[1], option.name, folder)
    secret = not is_address(option.path)
    return substituted(
        text, lambda match: variable_text(match, option.name, folder, variables, secret=secret)
    )


def variable_text(
    match: re.Match[str], user: str, folder: Path, variables: Variables, *, secret: bool = False
) -> str:
    """Return what stands for a reference of `user`; raise `TargetError` that names the variable."""
    name = match[1]
    if not variables.may_read(name, secret=secret):
        message = f"{user} may not read the environment variable {name}; name it in a .env file in"
        raise TargetError(
            _KIND, f"{message} {folder} or above, or in `readable_names` of evalcore.toml"
        )
    value = variables.value(name, match[2], secret=secret)
    if value is None:
        message = f"{user}: the environment variable {name} is not set"
        raise TargetError(_KIND, f"{message} in the process that runs the suite")
    return value


def _written(reference: str, option: str, folder: Path) -> str:
    """Return the text that the file holds, which the plan only refers to."""
    import yaml

    lost = f"{option} is written literally in a file that is not here, or not as it was any more"
    error = TargetError(_KIND, f"{lost}; write it as ${{{{ NAME }}}} and set that variable")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        file_path, target, *path = orjson.loads(reference)
        file = (folder / file_path).resolve()
        # The file that defines a suite's targets lies beside it or above, in its repository.
        holder = file.parent.parent if file.parent.name == ".agentv" else file.parent
        inside = file.is_relative_to(repository_root(folder))
        if not inside or not folder.resolve().is_relative_to(holder):
            raise error
        written = yaml.load(file.read_bytes(), loader)  # noqa: S506 - makes texts, lists, mappings
        entries = written["targets"] if isinstance(written, dict) else written
        named = (each for each in entries if isinstance(each, dict) and each.get("name") == target)
        value: Any = next(named)
        for key in path:
            value = value[key]
    except (OSError, ValueError, KeyError, TypeError, StopIteration, yaml.YAMLError) as problem:
        raise error from problem
    if not isinstance(value, str):
        raise error
    return value


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
_BODIES: Final = ("body", "parameters")
_HEADER_OF_COMMAND: Final = re.compile(r"\b([\w-]+):\s+((?:\w+\s+)?[^\s\"'$`]+)(?=[\s\"']|$)")
_WEB_ADDRESS: Final = re.compile(r"https?://[^\s\"'`\\]+")

Loc = tuple[str | int, ...]


class LiteralSecret(NamedTuple):
    """Where a secret is written, as a path, and what holds it, such as `header 'X-Key'`."""

    path: Loc
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

    def headers(self, headers: Mapping[Any, Any], path: Loc) -> Iterator[LiteralSecret]:
        for name, value in headers.items():
            named = SECRET_HEADER.search(str(name)) is not None
            if self.is_secret(value, named=named):
                yield LiteralSecret((*path, str(name)), f"header '{name}'")

    def address(self, url: str, path: Loc, *, login: bool = True) -> Iterator[LiteralSecret]:
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

    def value(self, value: Any, path: Loc) -> Iterator[LiteralSecret]:
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

    def _text(self, text: str, path: Loc) -> Iterator[LiteralSecret]:
        if self.is_secret(text, named=False):
            yield LiteralSecret(path, f"'{path[-1]}'")
            return
        for match in _FIELD_OF_TEXT.finditer(text):
            name = match["member"] or match["field"] or match["element"]
            written = match["json"] or unquote(match["form"] or "") or match["xml"]
            if self._is_name(name) and self.is_secret(written):
                yield LiteralSecret(path, f"'{name}'")

    def command(self, command: Any, path: Loc) -> Iterator[LiteralSecret]:
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
    options: Mapping[str, Any], search: _Search, path: Loc, *, login: bool = False
) -> Iterator[LiteralSecret]:
    for name in _ADDRESSES:
        if isinstance(options.get(name), str):
            yield from search.address(options[name], (*path, name), login=login)
    for name in _BODIES:
        yield from search.value(options.get(name), (*path, name))


def literals_of_script(value: Any, path: Loc = ()) -> Iterator[LiteralSecret]:
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
