"""Transforms of outputs: JavaScript that only follows a path is a JSONPath."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_STEP: Final = re.compile(
    r"""\??\.(?P<key>[A-Za-z_$][\w$]*)|\??\.?\[(?P<index>\d+)\]|\[(['"])(?P<name>[^'"\]]+)\3\]"""
)


def json_path(script: str, names: Sequence[str] = ("output",)) -> str | None:
    """Return the JSONPath of `output.a[0]` or `JSON.parse(output).a[0]`, None for other scripts.

    `$` is the output itself. `names` are what the script calls the output.
    """
    text = script.strip().rstrip(";").strip().removeprefix("return ").strip()
    for name in names:
        for start in (f"JSON.parse({name})", f"({name})", name):
            if text.startswith(start):
                rest = _steps(text.removeprefix(start))
                if rest is not None:
                    return f"${rest}"
    return None


def path_steps(path: str) -> list[str | int]:
    """Return the keys and indices of a JSONPath that `json_path` wrote."""
    return [
        int(match["index"]) if match["index"] is not None else match["key"] or match["name"]
        for match in _STEP.finditer(path.removeprefix("$"))
    ]


def _steps(text: str) -> str | None:
    path, position = "", 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            return None
        if match["index"] is not None:
            path += f"[{match['index']}]"
        else:
            key = match["key"] or match["name"]
            if key in ("length", "trim", "toLowerCase", "toUpperCase"):
                return None
            path += f".{key}" if match["key"] else f"['{key}']"
        position = match.end()
    return path
