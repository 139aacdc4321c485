"""The tables of the sentences of a specification name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLES = sorted((TESTS / "spec" / "sentences").glob("*.md"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_the_tests_of_a_table_of_sentences_exist(table: Path) -> None:
    defined = {
        name
        for file in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    rows = [line for line in table.read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    assert rows
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert set(named) <= defined, row
