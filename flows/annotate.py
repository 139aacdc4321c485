"""Ask people what a run needs to be decided (`evalcore.prefect.annotate`)."""

from evalcore.prefect.annotate import annotate

__all__ = ["annotate"]
