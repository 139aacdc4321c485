"""Options of a target that are secret: kept as references in the plan, read when it is built.

Secret are `api_key` and the values of `headers` and `env` (docs/decisions/0016), and what a
variable puts into an address (docs/decisions/0022). In the plan stands `${{ NAME }}` as it was
written, or, for a secret that the file holds literally, where it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evalcore.errors import TargetError
from evalcore.redaction.names import SECRET_HEADER, is_key
from evalcore.redaction.redactor import PROCESS
from evalcore.settings import repository_root
from evalcore.trust.variables import MARK, REFERENCE, Variables, substituted

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
        match[0]: _value_of(match, option, folder, variables)
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
    return substituted(text, lambda match: _value_of(match, option, folder, variables))


def _value_of(
    match: re.Match[str], option: SecretOption, folder: Path, variables: Variables
) -> str:
    name, secret = match[1], not is_address(option.path)
    if not variables.may_read(name, secret=secret):
        message = f"may not read the environment variable {name}; name it in a .env file in"
        raise TargetError(
            _KIND, f"{message} {folder} or above, or in `readable_names` of evalcore.toml"
        )
    value = variables.value(name, match[2], secret=secret)
    if value is None:
        message = f"{option.name}: the environment variable {name} is not set"
        raise TargetError(_KIND, f"{message} in the process that runs the suite")
    return value


def _written(reference: str, option: str, folder: Path) -> str:
    """Return the text that the file holds, which the plan only refers to."""
    lost = f"{option} is written literally in a file that is not here, or not as it was any more"
    error = TargetError(_KIND, f"{lost}; write it as ${{{{ NAME }}}} and set that variable")
    try:
        file_path, target, *path = orjson.loads(reference)
        file = (folder / file_path).resolve()
        # The file that defines a suite's targets lies beside it or above, in its repository.
        holder = file.parent.parent if file.parent.name == ".agentv" else file.parent
        inside = file.is_relative_to(repository_root(folder))
        if not inside or not folder.resolve().is_relative_to(holder):
            raise error
        value: Any = _entry(file, target)
        for key in path:
            value = value[key]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise error from problem
    if not isinstance(value, str):
        raise error
    return value


def _entry(file: Path, target: str) -> Mapping[str, Any]:
    """Return what the file writes of the target, every scalar as text."""
    from evalcore.trust.target_entries import read_target_entries

    for entry in read_target_entries(file):
        if isinstance(entry, dict) and entry.get("name") == target:
            return entry
    raise KeyError(target)
