"""Charts drawn, and scripts bundled, by a process of their own: its memory is free afterwards.

The engine that draws takes 100 MB, and a viewer draws a picture rarely.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Final

import orjson

from evalcore.errors import StoreError

_WRITE: Final = "import sys, vl_convert; text = sys.stdin.buffer.read().decode(); "
_DRAW: Final = (
    f"{_WRITE}drawn = vl_convert.vegalite_to_svg(text, allowed_base_urls=[]); "
    "sys.stdout.buffer.write(drawn.encode())"
)
_BUNDLE: Final = f"{_WRITE}sys.stdout.buffer.write(vl_convert.javascript_bundle(text).encode())"
_LONGEST_S: Final = 60.0


def draw_svg(spec: dict[str, Any]) -> bytes:
    """Return a chart as SVG; raise `StoreError` if it cannot be drawn."""
    return _written_by(_DRAW, orjson.dumps(spec))


def bundle_script(text: str) -> bytes:
    """Return a script with Vega's libraries; raise `StoreError` if it cannot be made."""
    return _written_by(_BUNDLE, text.encode())


def _written_by(program: str, data: bytes) -> bytes:
    command = [sys.executable, "-P", "-c", program]
    try:
        ended = subprocess.run(
            command, input=data, capture_output=True, timeout=_LONGEST_S, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise StoreError(f"the chart cannot be drawn here: {type(error).__name__}") from error
    return ended.stdout
