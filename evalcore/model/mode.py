"""How a run gets the answers of its providers."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Real calls; real calls that are saved; recordings only; what is recorded, else real calls."""

    LIVE = "live"
    RECORD = "record"
    REPLAY = "replay"
    AUTO = "auto"
