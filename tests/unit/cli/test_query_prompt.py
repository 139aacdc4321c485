"""The prompt of `evalcore query`: statements of several lines; a mistake does not end it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from evalcore.cli.history import _converse, query
from evalcore.history.query import QueryLimits
from evalcore.storage.local import LocalStore


def converse(folder: Path, text: str, limit: int | None = None) -> tuple[str, str]:
    """Return what the prompt writes to standard output and to standard error."""
    store = LocalStore(folder / "store")
    with CliRunner().isolation(input=text) as (out, err, _):
        _converse(store, QueryLimits(memory_mb=256, time_s=30), limit)
        return out.getvalue().decode(), err.getvalue().decode()


def test_a_mistake_does_not_end_the_prompt_and_a_statement_may_have_several_lines(
    tmp_path: Path,
) -> None:
    out, err = converse(
        tmp_path,
        "SELEC 1;\n\nSELECT 41 + 1\n  AS answer;\nFROM range(3);\n.quit\nSELECT 77 AS late;\n",
        limit=2,
    )
    assert "answer" in out
    assert "42" in out
    assert "late" not in out
    assert "SELEC" in err
    assert "more rows than 2" in err


def test_the_schema_can_be_looked_at_and_the_end_of_input_ends_the_prompt(tmp_path: Path) -> None:
    out, err = converse(tmp_path, ".schema\nSELECT 1")
    assert "items('RUN'): the rows of a run" in out
    assert ".schema shows the columns" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT 1", "--json", "--format", "csv"], "--json and --format csv: one format"),
        (["SELECT 1", "-o", "missing/file.csv", "--no-sync"], "cannot be written: no such folder"),
        (["DROP TABLE runs"], "SELECT"),
    ],
)
def test_a_query_that_cannot_be_answered_says_why(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    store = str(tmp_path / "store")
    result = CliRunner().invoke(query, [*arguments, "--store", store])
    assert result.exit_code != 0
    assert message in str(result.exception)
