"""Checks on evidence: one family a file, one row each in `registry`."""
