"""Parts of a script suite as the plan keeps them: JSON, without what changes nothing."""

from __future__ import annotations

import math
from typing import Any, Final

from evalcore.formats.documents import as_json
from evalcore.scripts.program import Layer
from evalcore.scripts.tools import ToolShape

_IGNORED: Final = frozenset(name for name, info in ToolShape.model_fields.items() if info.exclude)
_TOOL_MARKS: Final = frozenset({"import_tool", "import_tools", "do", "call"})


def stored_layer(layer: Layer) -> list[Any]:
    """Return a layer as `[path, raw, chain]`."""
    return [list(layer.path), stored(layer.raw), layer.chain]


def stored(value: Any) -> Any:
    """Return a value as JSON; keys that are no text become text, NaN an expression that gives it.

    Hints for a screen are left out of tools and statements: they change no result.
    """
    return as_json(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        hinted = not _TOOL_MARKS.isdisjoint(value)
        return {
            key: _plain(item) for key, item in value.items() if not (hinted and key in _IGNORED)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return f"${{float('{value}')}}"
    return value
