"""What registering did, thing by thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

CREATED = "created"
CHANGED = "changed"
UNCHANGED = "unchanged"


class Registration(NamedTuple):
    """What happened to one thing; `fields` are those that differed before.

    `details` are lines about it: what a field was and is, and what is kept.
    """

    kind: str
    name: str
    did: str
    fields: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        fields = f" ({', '.join(self.fields)})" if self.fields else ""
        first = f"{self.did:<10} {self.kind} {self.name}{fields}"
        return "\n".join((first, *(f"{'':<11}{detail}" for detail in self.details)))


def compare(
    kind: str, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> Registration:
    """Return what has to happen so that what was before (None: nothing) becomes what is wanted."""
    if before is None:
        return Registration(kind, name, CREATED)
    fields = tuple(key for key, value in after.items() if before.get(key) != value)
    return Registration(kind, name, CHANGED if fields else UNCHANGED, fields)
