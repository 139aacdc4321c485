"""Datasets: immutable versions of cases, and captures of real usage that wait to become some."""
