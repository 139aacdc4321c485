"""Write the tables of the documentation that are generated from the code.

    python .ci/tables.py

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. A test compares it with the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evalcore.checks.dialects import assertions_table
from evalcore.checks.scorers import scorers_table
from evalcore.gates.registry import gates_table
from evalcore.history.columns import TABLES as HISTORY_TABLES
from evalcore.history.columns import HistoryTable
from evalcore.sql.columns import result_columns_table
from evalcore.targets.registry import targets_table
from evalcore.workflow.reading import blocks_table


def columns_table(table: HistoryTable) -> str:
    """Return the columns as a table in Markdown, for the documentation."""
    rows = (
        f"| `{column.name}` | {column.type} | {column.unit or '–'} | {column.meaning} |"
        for column in table.columns
    )
    return "\n".join(("| column | type | unit | holds |", "|---|---|---|---|", *rows))


REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
TABLES: dict[str, Callable[[], str]] = {
    "assertions": assertions_table,
    "gates": gates_table,
    "scorers": scorers_table,
    "targets": targets_table,
    "blocks": blocks_table,
    "result-columns": result_columns_table,
    **{f"history-{name}": partial(columns_table, table) for name, table in HISTORY_TABLES.items()},
}


def main() -> None:
    """Write every table into its page."""
    for page in REFERENCE.glob("*.md"):
        text = page.read_text("utf-8")
        for name, table in TABLES.items():
            pattern = rf"(?<=<!-- table: {name} -->\n\n).*?(?=\n\n<!-- end -->)"
            text = re.sub(pattern, table().replace("\\", r"\\"), text, flags=re.DOTALL)
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
