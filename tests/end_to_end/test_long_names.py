"""Names that no file can have are names of suites, or mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import evalcore

LONG = "x" * 300
SUITE = f"""
name: {LONG}
tests: [{{id: a, input: q, fixtures: {{output: b}}, assertions: [{{type: equals, value: b}}]}}]
"""


@pytest.mark.parametrize(
    "command",
    [
        ("regrade", "last", LONG),
        ("recordings", "import", LONG),
        ("query", "SELECT 1", "-o", LONG),
        ("runs", "list", "--store", f"{LONG}/{LONG}"),
        ("init", "--format", "suite", LONG),
    ],
    ids=lambda command: command[0],
)
def test_a_name_that_no_file_can_have_is_a_mistake(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "s.eval.yaml").write_text(SUITE, "utf-8")
    if command[0] == "regrade":
        evalcore("run", "s.eval.yaml", store=tmp_path / "store", cwd=tmp_path)
    ended = evalcore(*command, store=tmp_path / "store", cwd=tmp_path)
    assert ended.code == 2
    assert "File name too long" in ended.err
    assert LONG not in ended.err
