"""How Agent Skills' `evals.json` is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EVALS: Final = "evals"


def is_skill_evals(raw: Mapping[str, Any]) -> bool:
    """Whether a mapping is Agent Skills' `evals.json`: `evals` that are no blocks of a workflow."""
    evals = raw.get(EVALS)
    if not isinstance(evals, list) or "workflow" in raw:
        return False
    return "skill_name" in raw or any(isinstance(e, dict) and "prompt" in e for e in evals)
