"""Read a mapping of a script into its class; what is wrong is noted where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from evalcore.declared.base import Declared
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.shape_errors import explain
from evalcore.mistakes.shape_lookup import adapter
from evalcore.scripts.mistake_collector import MistakeCollector

S = TypeVar("S", bound=Declared)


def read_shape(
    shape: type[S],
    raw: Any,
    loc: Loc,
    mistakes: MistakeCollector,
    compiled: Mapping[str, Any] | None = None,
) -> S | None:
    """Return `raw` as an instance of `shape`, None if something is wrong.

    `compiled` are members that are made already; they take the place of those in `raw`.
    """
    values = {**raw, **compiled} if compiled else raw
    try:
        instance: S = adapter(shape).validate_python(values)
    except ValidationError as error:
        for path, message in explain(error, raw, shape):
            mistakes.add((*loc, *path), message)
        return None
    return instance
