"""The JSON Schema of test files."""

from __future__ import annotations

from typing import Any

from evalcore.formats.test_file.shapes import TestFile
from evalcore.mistakes.shape_lookup import adapter


def test_file_schema() -> dict[str, Any]:
    """Return the schema of a whole test file."""
    return adapter(TestFile).json_schema()
