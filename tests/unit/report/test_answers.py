"""Rows of an answer as JSON, CSV and a table: what each type of the database becomes."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from evalcore.report.tables import render_csv, render_json, render_table

UUID_TEXT = "12345678-1234-5678-1234-567812345678"
VALUES: dict[str, tuple[Any, Any, str, str]] = {
    "none": (None, None, "", "–"),
    "text": ("a", "a", "a", "a"),
    "formula": ("=1+1", "=1+1", "'=1+1", "=1+1"),
    "number as text": ("-1", "-1", "-1", "-1"),
    "true": (True, True, "true", "true"),
    "false": (False, False, "false", "false"),
    "integer": (2**63 - 1, 2**63 - 1, str(2**63 - 1), str(2**63 - 1)),
    "small float": (0.1234567, 0.1234567, "0.1234567", "0.123457"),
    "large float": (1234567.8, 1234567.8, "1234567.8", "1,234,568"),
    "decimal": (Decimal("1.50"), 1.5, "1.5", "1.5"),
    "time without a zone": (
        datetime(2026, 11, 23, 1, 2, 3), "2026-11-23T01:02:03Z", "2026-11-23T01:02:03Z",
        "2026-11-23T01:02:03Z",
    ),
    "time with a zone": (
        datetime(2026, 11, 23, tzinfo=UTC), "2026-11-23T00:00:00+00:00",
        "2026-11-23T00:00:00+00:00", "2026-11-23T00:00:00+00:00",
    ),
    "day": (date(2026, 11, 23), "2026-11-23", "2026-11-23", "2026-11-23"),
    "time of day": (time(1, 2), "01:02:00", "01:02:00", "01:02:00"),
    "list": ([1, date(2026, 1, 2)], [1, "2026-01-02"], '[1,"2026-01-02"]', '[1,"2026-01-02"]'),
    "mapping": ({1: (True, None)}, {"1": [True, None]}, '{"1":[true,null]}', '{"1":[true,null]}'),
    "other": (UUID(UUID_TEXT), UUID_TEXT, UUID_TEXT, UUID_TEXT),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_a_form_in_json_csv_and_a_table(name: str) -> None:
    value, in_json, in_csv, in_table = VALUES[name]
    rows = [[(value, "end")]]
    assert json.loads("".join(render_json(["a", "b"], rows))) == [{"a": in_json, "b": "end"}]
    lines = "".join(render_csv(["a", "b"], rows)).splitlines()
    assert list(csv.reader(lines)) == [["a", "b"], [in_csv, "end"]]
    *_, last = render_table(["a", "b"], rows, str)
    assert last.split("  ")[0].strip() == in_table


def test_an_answer_without_rows_is_an_empty_array_and_a_header() -> None:
    assert "".join(render_json(["a"], [])) == "[]\n"
    assert "".join(render_csv(["a", "=b"], [])) == "a,'=b\n"
    assert list(render_table(["a"], [], str)) == ["a", "─"]


def test_a_table_aligns_numbers_to_the_right_and_cuts_long_texts() -> None:
    rows = [[(1, "x" * 60), (100, "日本"), (None, "é")]]
    lines = list(render_table(["n", "text"], rows, str, widest=10))
    assert lines == [
        "  n  text",
        "───  ──────────",
        "  1  xxxxxxxxx…",
        "100  日本",
        "  –  é",
    ]
