"""The documentation is written in plain technical English: no vague persons."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs.test_links import PAGES, ROOT, prose

VAGUE_PERSON = re.compile(r"\b(somebody|nobody|whoever|anybody|someone)\b", re.IGNORECASE)
WRITTEN_HERE = [page for page in PAGES if page.startswith(("docs/", "README", "CONTRIBUTING"))]


@pytest.mark.parametrize("page", WRITTEN_HERE)
def test_a_page_names_who_acts(page: str) -> None:
    assert VAGUE_PERSON.findall(prose(ROOT / page)) == []
