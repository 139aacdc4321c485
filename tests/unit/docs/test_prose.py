"""The documentation is written in plain technical English: no vague persons."""

from __future__ import annotations

import re

from tests.unit.docs.test_links import PAGES, ROOT, prose

VAGUE_PERSON = re.compile(r"\b(somebody|nobody|whoever|anybody|someone)\b", re.IGNORECASE)
WRITTEN_HERE = [page for page in PAGES if page.startswith(("docs/", "README", "CONTRIBUTING"))]


def test_pages_name_who_acts() -> None:
    assert [page for page in WRITTEN_HERE if VAGUE_PERSON.search(prose(ROOT / page))] == []
