"""Evaluate one suite (`evalcore.prefect.flows`)."""

from evalcore.prefect.flows import evaluate

__all__ = ["evaluate"]
