"""Sampled inputs of real usage, written to a dataset's pending captures without slowing the caller.

`evalcore.capture(...)` captures (`capturing.capture`): the package can be called. It imports the
standard library and orjson; the thread that writes imports stores and redaction.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from evalcore.capture.decorator import Capturing, capture
from evalcore.capture.writer import CaptureCounts, capture_counts, flush_captures

__all__ = ["CaptureCounts", "Capturing", "capture", "capture_counts", "flush_captures"]


class _CallableModule(ModuleType):
    """The package, which captures when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return capture(*arguments, **options)


# A submodule of the name `capture` is an attribute of `evalcore` as soon as it is imported, in
# place of any function of that name.
sys.modules[__name__].__class__ = _CallableModule
