"""Law: items with a given output come to the rows of the whole way (execution/given_items.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalcore.execution.given_items import GivenEnd, GivenItem, GivenItems, is_given
from evalcore.pipeline import shard_execution
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.plan import load, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.planning.spool import compress_frame, decompress_frame
from evalcore.redaction.redactor import PROCESS
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import find_run

WORDS = ("", "a", "Blau", "STRASSE", "ß", "😀", '{"r": 1}', "[1]", "a\u2028b", " a ", "1")
texts = st.sampled_from(WORDS)
outputs = texts | st.lists(texts, max_size=4).map(" ".join) | st.just("x" * 5_000)
values = st.sampled_from([word for word in WORDS if word])
plain = st.builds(
    lambda kind, value: {"type": kind, "value": value},
    st.sampled_from(["contains", "icontains", "starts-with", "ends-with", "equals"]),
    values,
)
others: st.SearchStrategy[Mapping[str, Any]] = st.one_of(
    st.just({"type": "is-json"}),
    st.just({"type": "is_json", "weight": 0}),
    st.just({"type": "latency", "threshold": 10}),
    st.just({"type": "regex", "value": r"\w+", "flags": "i"}),
    st.just({"type": "regex", "value": "^x", "required": 0.5}),
    st.just({"type": "field-accuracy", "fields": [{"path": "r", "match": "exact"}]}),
    st.builds(lambda value: {"type": "contains-any", "value": [value, "b"]}, values),
    st.builds(
        lambda value, weight, required: {
            "type": "contains",
            "value": value,
            "weight": weight,
            "required": required,
            "name": f"own {value}",
        },
        values,
        st.sampled_from([0, 0.5, 2]),
        st.sampled_from([True, False, 0.3]),
    ),
    st.builds(lambda value: {"type": "contains", "value": value, "negate": True}, values),
)
tests = st.fixed_dictionaries(
    {
        "input": texts.filter(bool) | st.just([{"role": "user", "content": "a"}]),
        # A test without any weight does not load.
        "assertions": st.lists(plain | others, min_size=1, max_size=5).filter(
            lambda written: any(each.get("weight", 1) for each in written)
        ),
        "fixtures": st.fixed_dictionaries(
            {"output": outputs},
            optional={"metrics": st.just({"latency_ms": 3, "cost_usd": 0.5})},
        ),
    },
    optional={
        "tags": st.lists(values, max_size=2),
        "metadata": st.just({"r": 1, "n": {"a": [1.5, None]}}),
        "expected_output": st.sampled_from(["a", '{"r": 1}', {"r": 1}]),
        "criteria": st.just("is right"),
        "execution": st.sampled_from([{"threshold": 0.5}, {"threshold": 1}, {"threshold": 0}]),
    },
)


def rows_of(folder: Path, name: str, suite_file: Path) -> list[tuple[Any, ...]]:
    """Execute the suite in a store of its own; return the rows without their times."""
    run = plan_run(load(suite_file), LocalStore(folder / name), now=datetime.now(UTC))
    execute_run(run, ExecuteOptions())
    files = f"{folder / name}/runs/*/*/results/*.parquet"
    query = f"SELECT * EXCLUDE (started_at, ended_at) FROM '{files}' ORDER BY item"
    return duckdb.sql(query).fetchall()


def write_tests(folder: Path, cases: list[dict[str, Any]]) -> Path:
    """Write the tests as JSON lines."""
    path = folder / "cases.jsonl"
    lines = (json.dumps({"id": f"c{number}", **case}) for number, case in enumerate(cases))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def both_ways(cases: list[dict[str, Any]]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the rows of the tests by this way and by the whole way alone."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        suite_file = write_tests(folder, cases)
        short = rows_of(folder, "short", suite_file)
        patch.setattr(shard_execution, "holds_given_items", lambda *_: False)
        return short, rows_of(folder, "whole", suite_file)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(tests, min_size=1, max_size=12))
def test_rows_are_those_of_the_whole_way(cases: list[dict[str, Any]]) -> None:
    short, whole = both_ways(cases)
    assert short == whole


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[GivenEnd | None]:
    """Return what the short way makes of each given item."""
    noted: list[GivenEnd | None] = []
    end = GivenItems.end

    def noting(items: GivenItems, item: GivenItem) -> GivenEnd | None:
        noted.append(end(items, item))
        return noted[-1]

    monkeypatch.setattr(GivenItems, "end", noting)
    return noted


CASE: dict[str, Any] = {
    "input": "x",
    "fixtures": {"output": "Blue 1"},
    "assertions": [{"type": "contains", "value": "Blue"}, {"type": "regex", "value": r"\d"}],
}
FAILING = {**CASE, "assertions": [*CASE["assertions"], {"type": "equals", "value": "Red"}]}


def test_items_that_pass_end_here_and_others_take_the_whole_way(
    ends: list[GivenEnd | None], tmp_path: Path
) -> None:
    rows = rows_of(tmp_path, "store", write_tests(tmp_path, [CASE, FAILING, CASE]))
    assert [end is not None for end in ends] == [True, False, True]
    assert [row[10] for row in rows] == ["passed", "failed", "passed"]


def test_a_secret_in_a_given_output_is_covered() -> None:
    secret = "a-secret-of-this-process"
    PROCESS.learn([secret])
    try:
        short, whole = both_ways([{**CASE, "fixtures": {"output": f"Blue 1 {secret}"}}])
    finally:
        PROCESS.forget()
    assert short == whole
    assert secret not in str(short)


@pytest.mark.parametrize(
    "more",
    [
        {"workspace": 0},
        {"conversation": True},
        {"turns": []},
        {"target": "other"},
        {"targets": ["other"]},
        {"given": {"output": "x"}},
        {"reason_not_executable": "x"},
        {"fixture": {"output": "x", "metrics": {"latency_ms": 1}}},
        {"fixture": {"output": "x" * 4_097}},
        {"fixture": {"output": None}},
        {"threshold": 1.5},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_case_with_more_to_do_takes_the_whole_way(more: dict[str, Any]) -> None:
    case = {"id": "a", "input": "x", "assertions": [0], "fixture": {"output": "x"}}
    assert is_given(case)
    assert not is_given({**case, **more})


@pytest.mark.parametrize(
    "assertion",
    [
        {"type": "contains", "value": "Blue", "negate": True},
        {"type": "contains", "value": "Blue", "weight": 0},
        {"type": "contains", "value": "Blue", "required": True},
        {"type": "latency", "threshold": 10},
        {"type": "regex", "value": "^B"},
        {"type": "is-json", "negate": True},
        {"type": "execution-metrics", "max_tool_calls": 1},
    ],
    ids=json.dumps,
)
def test_an_assertion_of_each_kind_has_the_result_of_the_whole_way(
    assertion: dict[str, Any],
) -> None:
    short, whole = both_ways([{**CASE, "assertions": [*CASE["assertions"], assertion]}, CASE])
    assert short == whole


def test_tags_are_read_as_the_whole_way_reads_them(tmp_path: Path) -> None:
    suite_file = write_tests(tmp_path, [CASE])
    run = plan_run(load(suite_file), LocalStore(tmp_path / "store"), now=datetime.now(UTC))
    (part,) = (tmp_path / "store").glob("runs/*/*/plan/cases-*")
    head, case = decompress_frame(part.read_bytes()).splitlines()
    changed = json.dumps({**json.loads(case), "tags": "ab"}).encode()
    part.write_bytes(compress_frame(head + b"\n" + changed + b"\n"))
    (part.parent / "signature.json").unlink()
    execute_run(find_run(run.store, run.run_id), ExecuteOptions())
    (rows,) = (tmp_path / "store").glob("runs/*/*/results/*.parquet")
    assert duckdb.sql(f"SELECT tags FROM '{rows}'").fetchall() == [(["a", "b"],)]
