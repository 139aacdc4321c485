"""The environment of a grading program; secrets in it are read when it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.errors import TargetError
from evalcore.settings import read_settings
from evalcore.trust.secret_options import resolved, telling_values
from evalcore.trust.text import redact
from evalcore.trust.variables import (
    MARK,
    Variables,
    nearest_env_file,
    substituted,
    suite_variables,
    variables_from,
)


class GraderEnvironment(NamedTuple):
    """The variables with their values, and those values that are secret."""

    variables: dict[str, str]
    secrets: tuple[str, ...]

    def clean(self, text: str) -> str:
        """Return the text without the secrets."""
        return redact(text, self.secrets)


def with_values(value: Any, folder: Path) -> Any:
    """Return what a program is told, in which the values of variables stand for their references.

    Raise `TargetError` that names a variable that a suite of `folder` may not read or is not set.
    """
    variables: Variables | None = None

    def replacement(match: re.Match[str]) -> str:
        nonlocal variables
        variables = variables or suite_variables(folder)
        name = match[1]
        if not variables.may_read(name):
            message = f"the grader may not read the environment variable {name}"
            raise TargetError("secret", f"{message}; name it in a .env file")
        text = variables.value(name, match[2])
        if text is None:
            message = f"the environment variable {name} of the grader is not set"
            raise TargetError("secret", f"{message} in the process that runs the suite")
        return text

    return _filled(value, replacement)


def _filled(value: Any, replacement: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, str):
        return substituted(value, replacement)
    if isinstance(value, Mapping):
        return {key: _filled(member, replacement) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(member, replacement) for member in value]
    return value


def environment_of(written: Mapping[str, str], folder: Path) -> GraderEnvironment:
    """Return the environment for `env:` as it is written in a suite of `folder`.

    What stands for a `${{ NAME }}` is secret, and what is called a secret. Raise `TargetError`
    that names a variable that may not be read or is not set.
    """
    values = dict(written)
    secrets = set(telling_values(values))
    if any(MARK in text for text in values.values()):
        path = nearest_env_file(folder)
        names = read_settings(os.environ, Path.cwd()).readable_names
        variables = variables_from(b"" if path is None else path.read_bytes(), os.environ, names)
        values = resolved({"env": values}, folder, variables)[0]["env"]
        secrets |= {values[name] for name, text in written.items() if MARK in text}
    return GraderEnvironment(values, tuple(secrets))
