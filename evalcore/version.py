"""The version of the library."""

from __future__ import annotations

VERSION = "0.1.0"
