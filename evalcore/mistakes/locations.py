"""Where a mistake stands in a document: a path, and the function that finds its line."""

from __future__ import annotations

from collections.abc import Callable

Loc = tuple[str | int, ...]
Locate = Callable[[Loc], int | None]
