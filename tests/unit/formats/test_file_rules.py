"""The rules by which suite files are read: a run that is graded again keeps those of its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.model.suite import FILE_RULES
from tests.unit.formats.loading import load_text
from tests.unit.formats.test_iterations import FORMATS


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_a_suite_says_by_which_rules_its_file_was_read(tmp_path: Path, text: str) -> None:
    assert load_text(tmp_path, text).definition.file_rules == FILE_RULES
    assert load_text(tmp_path, text, file_rules=1).definition.file_rules == 1
