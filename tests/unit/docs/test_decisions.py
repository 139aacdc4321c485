"""Every decision has its status and date, and one line in the index."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "docs/decisions"
INDEX = (FOLDER / "README.md").read_text("utf-8")
PAGES = sorted(path.name for path in FOLDER.glob("0*.md"))


def test_a_decision_has_status_and_date() -> None:
    for page in PAGES:
        number = page[:4]
        text = (FOLDER / page).read_text("utf-8")
        head = re.match(rf"# {number} \S.*\n\nStatus: (.*)\. Date: (\d{{4}}-\d\d-\d\d)\.\n\n", text)
        assert head is not None, page
        row = rf"^\| \[{number}\]\({page}\) \| .* \| {head[2]} \| {re.escape(head[1])} \|$"
        assert re.search(row, INDEX, re.MULTILINE), page


def test_the_index_has_every_page_once_and_in_order() -> None:
    assert re.findall(r"^\| \[\d{4}\]\(([\w.-]+)\)", INDEX, re.MULTILINE) == PAGES
