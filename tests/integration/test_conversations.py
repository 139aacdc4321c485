"""Conversations, and several cases answered by one run of a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.shell import Ended, evalcore

BOOK = """
def fn(input, *, context):
    users = [m["content"] for m in input if m["role"] == "user"]
    if users[-1] == "fail":
        raise ValueError("no")
    return f"{len(input)}: {users[-1]}"
"""
TURNS = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "one"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "given"},
    {"role": "user", "content": "three"},
]


def run(folder: Path, suite: dict[str, Any], *flags: str) -> Ended:
    (folder / "book.py").write_text(BOOK)
    path = folder / "s.eval.yaml"
    path.write_text(json.dumps(suite))
    return evalcore("run", path, "--json", *flags, store=folder / "store", cwd=folder)


def rows(folder: Path) -> dict[str, tuple[str, str | None, Any, str | None]]:
    query = "SELECT case_id, status, output, evidence, error.message FROM read_parquet('{}')"
    found = duckdb.sql(query.format(folder / "store/runs/*/*/results/*.parquet")).fetchall()
    return {row[0]: (row[1], row[2], json.loads(row[3] or "{}"), row[4]) for row in found}


PYTHON = [{"name": "default", "provider": "python", "callable": "book:fn"}]
ANY = [{"type": "regex", "value": "^"}]


@pytest.mark.parametrize("place", ["test", "suite"])
def test_the_target_answers_each_user_turn_in_order(tmp_path: Path, place: str) -> None:
    equals = {"type": "equals", "value": "6: three"}
    test: dict[str, Any] = {"id": "a", "input": TURNS, "assertions": [equals]}
    suite: dict[str, Any] = {"targets": PYTHON, "tests": [test]}
    if place == "test":
        test["conversation"] = True
    else:
        suite["execution"] = {"conversation": True}
    assert run(tmp_path, suite).code == 0
    assert rows(tmp_path)["a"][2]["details"]["messages"] == [
        {"role": "assistant", "content": "2: one"},
        {"role": "assistant", "content": "given"},
        {"role": "assistant", "content": "6: three"},
    ]


def test_without_the_word_messages_are_one_prompt(tmp_path: Path) -> None:
    test = {"id": "a", "input": TURNS, "assertions": [{"type": "equals", "value": "5: three"}]}
    assert run(tmp_path, {"targets": PYTHON, "tests": [test]}).code == 0


def test_an_error_names_its_turn(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "one"}, {"role": "user", "content": "fail"}]
    test = {"id": "a", "conversation": True, "input": turns, "assertions": ANY}
    run(tmp_path, {"targets": PYTHON, "tests": [test]})
    assert str(rows(tmp_path)["a"][3]).startswith("turn 2: ValueError: no (")


def test_a_program_reads_what_was_said(tmp_path: Path) -> None:
    command = (
        "python3 -c 'import json,sys; print(len(json.load(open(sys.argv[1]))))' {messages_file}"
    )
    targets = [{"name": "default", "provider": "command", "command": command}]
    turns = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    test = {"id": "a", "conversation": True, "input": turns, "assertions": ANY}
    assert run(tmp_path, {"targets": targets, "tests": [test]}).code == 0
    assert rows(tmp_path)["a"][1] == "3"
