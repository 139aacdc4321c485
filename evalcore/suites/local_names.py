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

    def refer(self, thing: Any, name: str | None = None) -> str:
        """Return the reference of an object; the same object has the same one."""
        wanted = re.sub(r"[^\w.]+", "_", name or name_of(thing)).strip("._") or "function"
        base = reference = f"{LOCAL}{wanted}"
        number = 2
        while reference in self.objects and self.objects[reference] is not thing:
            reference = f"{base}_{number}"
            number += 1
        self.objects[reference] = thing
        return reference

    def describe(self, thing: Any, name: str | None = None) -> dict[str, str]:
        """Return `{callable, behaviour}` of an object."""
        return {"callable": self.refer(thing, name), "behaviour": self._behaviours.of(thing)}
