"""`${{ NAME }}`: which environment variables a suite may read, and what they hold.

`$${{` is the text `${{`, in every text in which references are read.
Only names that the nearest `.env` file names, `EVAL_*`, and those of the configuration may be read,
so that a suite file cannot read secrets into an output (docs/reference/formats.md). The providers'
own keys may be read as well, but only into secret options (evalcore.trust.secret_options).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from evalcore.redaction.redactor import PROCESS
from evalcore.settings import find_upward, read_settings

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
# Text in quotes may have several lines, and a comment behind it; other text ends with its line.
_ENTRY: Final = re.compile(
    r"""
    ^ [^\S\n]* (?: export [^\S\n]+ )? (?P<name> [A-Za-z_][A-Za-z0-9_]* ) [^\S\n]* =
    (?: [^\S\n]* (?P<quote> ["'`] )
        (?P<quoted> (?: \\(?P=quote) | (?!(?P=quote))[\s\S] )* ) (?P=quote)
        (?= [^\S\n]* (?: \# | $ ) )
      | (?P<bare> .* ) )
    """,
    re.VERBOSE | re.MULTILINE,
)
_COMMENT: Final = re.compile(r"\s#.*")


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
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return {
        entry["name"]: _bare(entry["bare"]) if entry["quote"] is None else entry["quoted"]
        for entry in _ENTRY.finditer(text)
    }


def _bare(written: str) -> str:
    """Return a value that is no text in quotes: it may hold some, or be one of two."""
    value = _COMMENT.sub("", written).strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'`"
    return value[1:-1] if quoted else value
