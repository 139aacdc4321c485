"""The tables of the history and their columns, each declared once, in `columns.csv`.

The files, the views, `evalcore query --schema` and docs/reference/history.md are made from these
rows. A table's files have all of its columns but `suite`, which stands in their folder, and
`REVISION`. New columns come at the end of a table: files of earlier versions lack them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.sql.columns import Column, read_columns


class HistoryTable(NamedTuple):
    """One table: its name, what a row is, its columns in their order."""

    name: str
    row: str
    columns: tuple[Column, ...]


MONTH: Final = "month"
PARTITIONS: Final = ("suite", MONTH)
REVISION: Final = "revision"
"""Which writing of the run's rows this is: the greatest one counts."""
_ROWS: Final = {
    "runs": "run × variant",
    "gates": "run × gate",
    "cases": "run × case × variant",
    "assertions": "run × item × assertion",
}


_FILE: Final = Path(__file__).with_name("columns.csv")
TABLES: Final[Mapping[str, HistoryTable]] = {
    name: HistoryTable(name, row, read_columns(_FILE, name)) for name, row in _ROWS.items()
}
