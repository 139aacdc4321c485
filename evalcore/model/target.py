"""What is evaluated, and the small named changes to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """Something that answers a case. `kind` is a row of `targets.registry`.

    `options` are JSON values, checked by the loader against the kind's model.
    """

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variant:
    """A small named change to the target's configuration.

    `target` replaces the suite's target; `config` is laid over its options.
    """

    id: str
    target: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


DEFAULT_VARIANT = Variant(id="default")
