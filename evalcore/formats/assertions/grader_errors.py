"""The mistake of an assertion that is well-shaped."""

from __future__ import annotations


class AssertionValueError(ValueError):
    """An assertion is well-shaped and still wrong; the message says what would work."""
