"""What passing assertions looked at stands in the report, and not twice in the store."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from evalcore.analytics.summary import REPEATED_TEXT_ITEMS
from tests.support.shell import Json, evalcore

WORKFLOW = r"""
version: "1.0"
eval:
  threshold: 0.1
  cases:
    - id: c1
      fixtures:
        one.exit: "alpha of block one"
        "t/wo~": '{"k": "picked"}'
        three: {output: "the last", metrics: {latency_ms: 5}}
      expected:
        one.exit: [{type: contains, value: alpha}, {type: not-contains, value: beta}]
        "t/wo~": [{type: equals, value: picked, transform: "json_path:$.k"}, {type: is-json}]
        three: [{type: latency, threshold: 10}, {type: not-latency, threshold: 3}%s]
"""
ACTUAL = {
    "one.exit: contains-alpha": "alpha of block one",
    "one.exit: not-contains-beta": "alpha of block one",
    "t/wo~: equals-picked": "picked",
    "t/wo~: is-json": '{"k": "picked"}',
    "three: latency": "5 ms",
    "three: not-latency": "5 ms",
}


def assertions(report: Json) -> dict[str, str | None]:
    """Return what each assertion of the first item looked at, by block and name."""
    found = {}
    for one in report["cases"][0]["items"][0]["assertions"]:
        block = f"{one['block']}: " if one["block"] else ""
        found[f"{block}{one['name']}"] = one["actual"]
    return found


def run(path: Path, text: str, *flags: str) -> Json:
    path.write_text(text, "utf-8")
    return evalcore("run", "--json", path, *flags, store=path.parent / "st").report


def test_a_passing_assertion_says_what_it_looked_at(tmp_path: Path) -> None:
    report = run(tmp_path / "w.yaml", WORKFLOW % "", "--report", "html")
    assert assertions(report) == ACTUAL
    shown = evalcore("report", "-v", report["run"]["id"], store=tmp_path / "st")
    for text in (*ACTUAL.values(), "output of one.exit  alpha of block one"):
        assert text in shown.out
    (page,) = (tmp_path / "st").rglob("*.html")
    assert page.read_text("utf-8").count("alpha of block one") >= 2


def test_a_report_holds_the_text_of_each_block_that_was_asserted(tmp_path: Path) -> None:
    report = run(tmp_path / "w.yaml", WORKFLOW % ", {type: contains, value: nope}")
    (item,) = report["cases"][0]["items"]
    assert item["outputs"] == {
        "one.exit": "alpha of block one",
        "t/wo~": '{"k": "picked"}',
        "three": "the last",
    }
    assert assertions(report) == ACTUAL | {"three: contains-nope": "the last"}


@pytest.mark.parametrize("size", [500, 70_000])
def test_an_output_is_shown_by_its_beginning_and_stored_once(tmp_path: Path, size: int) -> None:
    output = "x" * size
    checks = [{"type": "contains", "value": "x"}, {"type": "regex", "value": "^x+$"}]
    tests = [{"id": "a", "input": "q", "fixtures": {"output": output}, "assertions": checks}]
    report = run(tmp_path / "s.eval.yaml", json.dumps({"tests": tests}))
    beginning = output if size <= 500 else output[:499] + "…"
    assert list(assertions(report).values()) == [beginning] * 2
    (part,) = (tmp_path / "st").rglob("*.parquet")
    row = duckdb.execute("SELECT list_transform(assertions, a -> a.actual) FROM $p".replace(
        "$p", f"'{part}'")).fetchone()  # fmt: skip
    assert row == ([None, None],)


def test_a_large_report_repeats_no_output_in_assertions_that_passed(tmp_path: Path) -> None:
    checks = [
        {"type": "contains", "value": "the"},
        {"type": "contains", "value": "never"},
        {"type": "latency", "threshold": 10},
    ]
    output = "the answer"
    fixtures = {"output": output, "metrics": {"latency_ms": 5}}
    lines = [
        json.dumps({"id": f"c{n}", "input": "q", "fixtures": fixtures, "assertions": checks})
        for n in range(REPEATED_TEXT_ITEMS + 1)
    ]
    looked_at = []
    for count in (REPEATED_TEXT_ITEMS, REPEATED_TEXT_ITEMS + 1):
        report = run(tmp_path / "s.jsonl", "\n".join(lines[:count]))
        looked_at.append(list(assertions(report).values()))
    assert looked_at == [[output, output, "5 ms"], [None, output, "5 ms"]]
    shown = evalcore("report", "-v", report["run"]["id"], store=tmp_path / "st")
    assert shown.out.count("the answer") > REPEATED_TEXT_ITEMS
