"""`${{ NAME }}` in an author's strings: environment variables, by name on a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evalcore.formats.documents import read_bytes
from evalcore.formats.options import LoadOptions
from evalcore.problems import Problems
from evalcore.trust.secrets import (
    MARK,
    PROVIDER_KEYS,
    Variables,
    ignored_env_files,
    is_address,
    is_secret_path,
    nearest_env_file,
    substituted,
    variables_from,
)
from evalcore.wording import Loc, shown_path

_ASSERTIONS: Final = frozenset({"assertions", "assert", "evaluators"})
# assertions, its number, `env`, the variable.
_SHORTEST_GRADER: Final = 4
_GRADERS: Final = ("code-grader", "code-judge")
# What a program that grades is told; it is filled when the program runs.
_OF_PROGRAMS: Final = frozenset({"command", "script", "config"})
# The keys of a grader that are read when the suite is loaded.
_OF_GRADERS: Final = frozenset(
    {
        *("type", "name", "weight", "negate", "required", "min_score", "flags", "threshold"),
        *("cwd", "env", "timeout", "timeout_ms", "memory_mb", "target", "aggregator"),
    }
)

__all__ = ["Variables", "interpolate", "variables_for"]


def variables_for(folder: Path, options: LoadOptions) -> Variables:
    """Return the variables of the nearest `.env` upward and of the environment, which wins.

    Where no provider is asked, a provider's key may be missing (`secrets_required`).
    """
    path = nearest_env_file(folder)
    env_file = b"" if path is None else read_bytes(path, shown_path(path))
    variables = variables_from(env_file, options.environment, options.readable_names)
    return replace(
        variables,
        ignored=ignored_env_files(folder),
        required=variables.required and options.secrets_required,
    )


def _is_secret(loc: Loc) -> bool:
    """Whether an option of a target or of a variant at this path of a suite file is secret."""
    if len(loc) > 2 and loc[0] == "targets":
        return is_secret_path(loc[2:])
    if loc[:1] == ("flow",):
        return is_secret_path(loc[1:])
    if "config" in loc[:4] and "variants" in loc[:2]:
        return is_secret_path(loc[loc.index("config") + 1 :])
    if len(loc) < _SHORTEST_GRADER or loc[-2] != "env":  # of a program that grades
        return False
    return loc[-4] in _ASSERTIONS and isinstance(loc[-3], int)


def interpolate(
    value: Any,
    variables: Variables,
    loc: Loc,
    problems: Problems,
    is_secret: Callable[[Loc], bool] = _is_secret,
    *,
    deferred: bool = False,
) -> Any:
    """Return `value` with every reference in its strings replaced; note what cannot be.

    Such a reference stays as it is, so that what is wrong beside it is found, too; so does the text
    of a secret option, and of all where it is `deferred`.
    """
    if isinstance(value, str):
        if MARK not in value:
            return value
        secret = is_secret(loc)

        def replacement(match: re.Match[str]) -> str:
            value = _value(match, variables, loc, problems, stays=secret)
            return match[0] if value is None else value

        replaced = substituted(value, replacement)
        return value if deferred or secret else replaced
    if isinstance(value, dict):
        later = value if deferred else _deferred(value, loc)
        return {
            key: interpolate(
                item, variables, (*loc, key), problems, is_secret, deferred=key in later
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            interpolate(item, variables, (*loc, index), problems, is_secret, deferred=deferred)
            for index, item in enumerate(value)
        ]
    return value


def _deferred(value: Mapping[str, Any], loc: Loc) -> Collection[str]:
    """Return the keys of a program that grades that are filled when it runs.

    Also what its type does not know is for it.
    """
    if _ASSERTIONS.isdisjoint(loc):
        return ()
    kind = str(value.get("type")).replace("_", "-")
    if "command" not in value and "script" not in value and kind not in _GRADERS:
        return ()
    own = value.keys() - _OF_GRADERS if kind in _GRADERS else set()
    return own | (_OF_PROGRAMS & value.keys())


def _value(
    match: re.Match[str], variables: Variables, loc: Loc, problems: Problems, *, stays: bool
) -> str | None:
    """Return what a reference stands for; note what is wrong with it and return None."""
    name = match[1]
    secret = stays and not is_address(loc)
    if not variables.may_read(name, secret=secret):
        message = f"may not read the environment variable {name}; name it in a .env file"
        if name in PROVIDER_KEYS:
            message = f"{name} may be read only into `api_key`, `headers` and `env`"
            message += "; elsewhere name it in a .env file"
        message += ", or in `readable_names` of evalcore.toml"
        message += f"; `$${{{{ {name} }}}}` is the text itself"
        problems.add(loc, "; ".join([message, *variables.ignored]))
        return None
    value = variables.value(name, match[2], secret=secret)
    if value is None and (variables.required or not stays):
        message = f"the environment variable {name} is not set; set it or write a default:"
        message += f" ${{{{ {name}:-… }}}}"
        problems.add(loc, "; ".join([message, *variables.ignored]))
    return value


_SUFFIXES: Final = (".md", ".markdown", ".txt", ".prompt", ".j2", ".tmpl")
_LONGEST: Final = 500


def names_file(written: str) -> bool:
    """Whether a text names a file: `file://…`, or one line that ends or begins as a path does."""
    if written.startswith("file://"):
        return True
    if "\n" in written or "{{" in written or len(written) > _LONGEST:
        return False
    if written.startswith(("./", "../", "/")):
        return True
    return " " not in written and written.lower().endswith(_SUFFIXES)
