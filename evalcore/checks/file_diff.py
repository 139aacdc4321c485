"""The changes of a workspace's files as one text, as git writes a diff."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.model.evidence import Evidence

_MODES: Final = {"added": "new file mode 100644\n", "deleted": "deleted file mode 100644\n"}


def unified_diff(evidence: Evidence) -> str | None:
    """Return the changes of files as one text; None where no workspace was looked at.

    Each file begins with git's line `diff --git`. A file without a diff (too long, no text) has a
    line that says what happened to it.
    """
    changes = evidence.details.get("file_changes")
    if changes is None or isinstance(changes, str):
        return changes
    return "".join(_diff_of(change) for change in changes if isinstance(change, Mapping))


def _diff_of(change: Mapping[str, Any]) -> str:
    path, kind = change.get("path"), str(change.get("change", "changed"))
    text = change.get("diff") or f"{kind}: {path}"
    end = "" if text.endswith("\n") else "\n"
    return f"diff --git a/{path} b/{path}\n{_MODES.get(kind, '')}{text}{end}"
