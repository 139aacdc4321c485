"""How many examples property tests draw: few in CI, `EVALCORE_FUZZ` times as many in the night."""

from __future__ import annotations

import os
from typing import Any, Final

from hypothesis import settings

FUZZ: Final = int(os.environ.get("EVALCORE_FUZZ", "0"))


def examples(count: int, **options: Any) -> settings:
    """Return settings of hypothesis without a time limit for each example."""
    return settings(max_examples=count * max(FUZZ, 1), deadline=None, **options)
