"""How much of a caller's value is copied: what is more is refused before it is copied."""

from __future__ import annotations

from typing import Final

MAX_PARTS: Final = 100
"""Most members of all containers of a value that are copied one by one; more are packed."""
MAX_PACKED_PARTS: Final = 20_000
"""Most members of all containers of a value together."""
MAX_PACKED_BYTES: Final = 400_000
"""Most bytes of a packed value."""
MAX_CHARACTERS: Final = 200_000
"""Most characters of all texts of a value together."""
MAX_DEPTH: Final = 24
MEMBER_BYTES: Final = 50
"""About what a member of a container needs."""


class SnapshotError(Exception):
    """A value has too many parts, too much text, or refuses to be read."""


class TooManyPartsError(SnapshotError):
    """A value has more parts than are copied."""


class CopyBudget:
    """What may still be copied of a value: members one by one, members in all, characters."""

    __slots__ = ("characters", "members", "parts")

    def __init__(self, parts: int = MAX_PARTS) -> None:
        self.parts = parts
        self.members = MAX_PACKED_PARTS
        self.characters = MAX_CHARACTERS

    @property
    def size(self) -> int:
        """About how many bytes were copied or are referenced."""
        members = MAX_PARTS - self.parts + MAX_PACKED_PARTS - self.members
        return MAX_CHARACTERS - self.characters + MEMBER_BYTES * members

    def take_parts(self, number: int) -> None:
        """Take members that are copied one by one; raise `TooManyPartsError`."""
        self.parts -= number
        if self.parts < 0:
            raise TooManyPartsError("too many parts")

    def take_members(self, number: int) -> None:
        """Take members of containers; raise `SnapshotError`."""
        self.members -= number
        if self.members < 0:
            raise SnapshotError("too many members")

    def take_characters(self, number: int) -> None:
        """Take characters of texts; raise `SnapshotError`."""
        self.characters -= number
        if self.characters < 0:
            raise SnapshotError("too much text")
