"""Price rules that earlier processes have looked up, in the user's cache folder.

Importing genai-prices and its table takes 0.17 s of a core, in the event loop that calls models.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from evalcore.version import VERSION

_FORM: Final = 2
_MOST_RULES: Final = 1_000

Row = list[Any]


class PriceCache:
    """The rules of one version of genai-prices, as JSON values by model and provider.

    A file of another version, or one that is damaged, is as none. Nothing is raised where the
    folder cannot be read or written.
    """

    def __init__(self, path: Path | None, table: str) -> None:
        self._path = path
        self._table = f"{_FORM} {VERSION} {table}"

    def find(self, model: str, provider: str) -> Row | None:
        """Return the row of the model's rule; None if it was not stored."""
        row = self._read().get(_key(model, provider))
        return row if isinstance(row, list) else None

    def store(self, model: str, provider: str, row: Row) -> None:
        """Add the row; of two processes that write at once, one adds."""
        if self._path is None:
            return
        rows = self._read()
        if len(rows) >= _MOST_RULES:
            rows = {}
        rows[_key(model, provider)] = row
        unfinished = self._path.with_name(f".{uuid4().hex}")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                unfinished.write_bytes(orjson.dumps({"table": self._table, "rules": rows}))
                unfinished.replace(self._path)
            finally:
                unfinished.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            stored = orjson.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(stored, dict) or stored.get("table") != self._table:
            return {}
        rules = stored.get("rules")
        return rules if isinstance(rules, dict) else {}


def _key(model: str, provider: str) -> str:
    return f"{provider} {model}"


def user_price_cache() -> PriceCache:
    """Return the cache of this user for the installed genai-prices, which is not imported."""
    spec = find_spec("genai_prices")
    try:
        if spec is None or spec.origin is None:
            return PriceCache(None, "")
        table = Path(spec.origin).with_name("data.py")
        facts = table.stat()
        base = os.environ.get("XDG_CACHE_HOME")
        folder = Path(base) if base else Path.home() / ".cache"
    except (OSError, RuntimeError):  # no home
        return PriceCache(None, "")
    return PriceCache(
        folder / "evalcore" / "prices.json", f"{table} {facts.st_size} {facts.st_mtime_ns}"
    )
