"""The functions of a program under the names that the stored plan has for them."""

from __future__ import annotations

import re
from typing import Any

from evalcore.trust.local_objects import LOCAL, Behaviours, name_of


class LocalNames:
    """Gives each object a reference `local:NAME`; `objects` has them by it."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self._behaviours = Behaviours()

    def refer(self, value: Any, name: str | None = None) -> str:
        """Return the reference of an object; the same object has the same one."""
        stem = re.sub(r"[^\w.]+", "_", name or name_of(value)).strip("._") or "function"
        base = reference = f"{LOCAL}{stem}"
        number = 2
        while reference in self.objects and self.objects[reference] is not value:
            reference = f"{base}_{number}"
            number += 1
        self.objects[reference] = value
        return reference

    def describe(self, value: Any, name: str | None = None) -> dict[str, str]:
        """Return `{callable, behaviour}` of an object."""
        return {"callable": self.refer(value, name), "behaviour": self._behaviours.of(value)}
