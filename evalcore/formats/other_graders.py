"""Graders that ask no judge: programs, trajectories, fields, measures, composites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalcore.formats.positions import Loc
from evalcore.formats.problems import Problems

if TYPE_CHECKING:
    from evalcore.formats.graders import Graders, MakeMember


def read_other(
    graders: Graders,
    kind: str,
    raw: Mapping[str, Any],
    loc: Loc,
    problems: Problems,
    make: MakeMember,
) -> tuple[str, dict[str, Any]]:
    """Return the check and its parameters; raise `AssertionValueError`."""
    return "unavailable", {"type": kind, "reason": f"this version cannot evaluate '{kind}'"}
