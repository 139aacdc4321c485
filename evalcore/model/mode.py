"""How a run gets the answers of its providers, and which evidence it takes over."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

HISTORY: Final = "history"
"""Instead of the id of a run whose evidence is taken over: the suite's last completed runs."""


class Mode(StrEnum):
    """Real calls; real calls that are saved; recordings only; what is recorded, else real calls."""

    LIVE = "live"
    RECORD = "record"
    REPLAY = "replay"
    AUTO = "auto"
