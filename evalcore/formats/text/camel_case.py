"""Keys in camelCase read as snake_case: the source of the suite format is TypeScript."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalcore.declared.parameters import snake_case
from evalcore.mistakes.locations import Loc, Locate


class Renames:
    """Remembers how each key was written, so that mistakes have its line."""

    def __init__(self) -> None:
        self._written: dict[Loc, str] = {}

    def read(self, raw: Any, keys: Iterable[str], loc: Loc) -> Any:
        """Return the mapping with those of its keys renamed that `keys` have in snake_case only.

        A key that is there in both forms stays: the check of the keys does not know it.
        """
        if not isinstance(raw, Mapping):
            return raw
        names = set(keys)
        renamed: dict[Any, Any] = {}
        for key, value in raw.items():
            snake = snake_case(key) if isinstance(key, str) and key not in names else key
            if snake != key and snake in names and snake not in raw and snake not in renamed:
                self._written[(*loc, snake)] = key
                renamed[snake] = value
            else:
                renamed[key] = value
        return renamed

    def locate(self, inner: Locate) -> Locate:
        """Return the function that finds the lines of renamed paths."""

        def find(loc: Loc) -> int | None:
            written = [self._written.get((*loc[:end], part), part) for end, part in enumerate(loc)]
            return inner(tuple(written))

        return find
