"""Evaluate many suites every night (`evalcore.prefect.nightly`)."""

from evalcore.prefect.nightly import nightly

__all__ = ["nightly"]
