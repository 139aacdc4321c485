"""Which judges are calibrated: one object per judge and prompt in the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from evalcore.errors import ObjectNotFoundError
from evalcore.storage.object_store import ObjectStore

_PREFIX = "calibrations/"
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def write_calibration(store: ObjectStore, key: str, calibration: Mapping[str, Any]) -> None:
    """Write what a calibration found; the last one of a judge and prompt stands."""
    store.put(f"{_PREFIX}{key}.json", orjson.dumps(dict(calibration), option=_OPTIONS))


def read_calibration(store: ObjectStore, key: str) -> dict[str, Any] | None:
    """Return what the last calibration found; None if there was none."""
    try:
        calibration: dict[str, Any] = orjson.loads(store.get(f"{_PREFIX}{key}.json").data)
    except ObjectNotFoundError:
        return None
    return calibration


class Calibrations:
    """Answers which judges are calibrated, each asked for once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._calibrated: dict[str, bool] = {}

    def __call__(self, key: str) -> bool:
        """Whether the judge with this key is calibrated."""
        if key not in self._calibrated:
            calibration = read_calibration(self._store, key)
            self._calibrated[key] = (
                calibration is not None and calibration.get("calibrated") is True
            )
        return self._calibrated[key]
