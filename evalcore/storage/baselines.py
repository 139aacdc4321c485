"""The baselines of suites: pointers to earlier runs, by suite and name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.storage.layout import BASELINES_PREFIX, baseline_key, suite_key
from evalcore.storage.store import ObjectStore, swap

DEFAULT_NAME = "main"
SCHEMA: Final = 1
_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class BaselinePointer:
    """A suite's baseline of some name: a run. `set_at` is ISO 8601 in UTC."""

    suite: str
    name: str
    run: str
    set_at: str
    schema: Literal[1] = SCHEMA


def set_baseline(store: ObjectStore, pointer: BaselinePointer) -> BaselinePointer | None:
    """Write the pointer by compare-and-swap; return the one that it replaces."""
    key = baseline_key(suite_key(pointer.suite), pointer.name)
    replaced: bytes | None = None

    def point(data: bytes | None) -> bytes:
        nonlocal replaced
        replaced = data
        return orjson.dumps(pointer, option=_INDENTED)

    swap(store, key, point, label=f"baseline '{pointer.name}' of '{pointer.suite}'")
    return None if replaced is None else _parse(replaced, key)


def get_baseline(
    store: ObjectStore, suite: str, name: str = DEFAULT_NAME
) -> BaselinePointer | None:
    """Return the pointer to a suite's baseline of that name, None if there is none."""
    key = baseline_key(suite_key(suite), name)
    try:
        return _parse(store.get(key).data, key)
    except ObjectNotFoundError:
        return None


def list_baselines(store: ObjectStore, suite: str | None = None) -> Iterator[BaselinePointer]:
    """Yield the pointers of all suites (of one), by suite and name."""
    prefix = BASELINES_PREFIX if suite is None else f"{BASELINES_PREFIX}{suite_key(suite)}/"
    for info in store.list(prefix):
        if info.key.endswith(".json"):
            yield _parse(store.get(info.key).data, info.key)


def clear_baseline(store: ObjectStore, suite: str, name: str = DEFAULT_NAME) -> bool:
    """Remove the pointer; return whether there was one. The run stays."""
    if get_baseline(store, suite, name) is None:
        return False
    store.delete(baseline_key(suite_key(suite), name))
    return True


def _parse(data: bytes, key: str) -> BaselinePointer:
    try:
        return _pointers().validate_json(data)
    except ValidationError as error:
        raise StoreError(
            f"{key} is not a baseline that this version reads: {error.errors()[0]['msg']}"
        ) from error


_pointers = cache(lambda: TypeAdapter(BaselinePointer))
