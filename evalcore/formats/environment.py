"""`${{ NAME }}` in a suite's strings: environment variables, by name on a list.

Only names that the nearest `.env` file names, `EVAL_*`, and those of the configuration may be read,
so that a suite file cannot read secrets into an output (spec/test-files.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalcore.formats.options import LoadOptions
from evalcore.formats.positions import Loc
from evalcore.formats.problems import Problems
from evalcore.formats.source import read_bytes
from evalcore.formats.wording import shown_path

MARK = "${{"
_REFERENCE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?::-(.*?))?\s*\}\}", re.DOTALL)
_ENV_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that a suite may read: `values` of those that are set, `names` of all."""

    values: Mapping[str, str]
    names: frozenset[str]

    def may_read(self, name: str) -> bool:
        """Whether the suite may read a variable of this name."""
        return name in self.names or name.startswith("EVAL_")


def variables_for(folder: Path, options: LoadOptions) -> Variables:
    """Return the variables of the nearest `.env` upward and of the environment, which wins."""
    from_file: dict[str, str] = {}
    for parent in (folder.resolve(), *folder.resolve().parents):
        path = parent / ".env"
        if path.is_file():
            from_file = _read_env_file(path)
            break
    names = frozenset(from_file) | options.readable_names
    readable = {
        name: value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for name, value in options.environment.items()
        if name in names or name.startswith("EVAL_")
    }
    return Variables({**from_file, **readable}, names)


def _read_env_file(path: Path) -> dict[str, str]:
    values = {}
    for line in read_bytes(path, shown_path(path)).decode("utf-8", "replace").splitlines():
        match = _ENV_LINE.match(line)
        if match and not line.lstrip().startswith("#"):
            value = match[2]
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            values[match[1]] = value[1:-1] if quoted else value.split(" #", 1)[0].rstrip()
    return values


def interpolate(value: Any, variables: Variables, loc: Loc, problems: Problems) -> Any:
    """Return `value` with every reference in its strings replaced; note what cannot be.

    Such a reference stays as it is, so that what is wrong beside it is found, too.
    """
    if isinstance(value, str):
        if MARK not in value:
            return value

        def replace(match: re.Match[str]) -> str:
            name = match[1]
            default: str | None = match[2]
            if not variables.may_read(name):
                message = f"may not read the environment variable {name}; name it in a .env file"
                problems.add(loc, f"{message}, or in `readable_names` of evalcore.toml")
                return match[0]
            found: str | None = variables.values.get(name, default)
            if found is None:
                message = f"the environment variable {name} is not set; set it or write a default:"
                problems.add(loc, f"{message} ${{{{ {name}:-… }}}}")
                return match[0]
            return found

        return _REFERENCE.sub(replace, value)
    if isinstance(value, dict):
        return {
            key: interpolate(item, variables, (*loc, key), problems) for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            interpolate(item, variables, (*loc, index), problems)
            for index, item in enumerate(value)
        ]
    return value
