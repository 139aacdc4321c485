"""The environment of a grading program; secrets in it are read when it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from evalcore.settings import read_settings
from evalcore.trust.secret_options import resolved, telling_values
from evalcore.trust.text import redact
from evalcore.trust.variables import MARK, nearest_env_file, variables_from


class GraderEnvironment(NamedTuple):
    """The variables with their values, and those values that are secret."""

    variables: dict[str, str]
    secrets: tuple[str, ...]

    def clean(self, text: str) -> str:
        """Return the text without the secrets."""
        return redact(text, self.secrets)


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
