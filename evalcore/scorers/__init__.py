"""Measurements of the evidence that are reported and decide nothing by themselves."""
