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


AGENT = """
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
with open("runs.log", "a") as log:
    log.write(f"{len(lines)}\\n")
with open(sys.argv[2], "w") as out:
    for line in reversed(lines):
        answer = {"id": line["id"], "output": line["prompt"].upper(), "cost_usd": 0.5}
        if line["prompt"] == "none":
            continue
        if line["prompt"] == "bad":
            answer = {"id": line["id"], "error": "cannot"}
        out.write(json.dumps(answer) + "\\n")
"""


def batched(folder: Path, prompts: list[str], batch: int, *flags: str) -> Ended:
    (folder / "agent.py").write_text(AGENT)
    command = ["python3", "agent.py", "{prompt_file}", "{output_file}"]
    target = {"name": "default", "provider": "command", "command": command, "batch": batch}
    tests = [
        {"id": f"t{number}", "input": prompt, "assertions": ANY}
        for number, prompt in enumerate(prompts)
    ]
    return run(folder, {"targets": [target], "tests": tests}, *flags)


def test_one_run_of_a_program_answers_several_cases(tmp_path: Path) -> None:
    assert batched(tmp_path, [f"p{number}" for number in range(10)], 5).code == 0
    assert {case: row[1] for case, row in rows(tmp_path).items()} == {
        f"t{number}": f"P{number}" for number in range(10)
    }
    counts = [int(line) for line in (tmp_path / "runs.log").read_text().split()]
    assert sum(counts) == 10
    assert len(counts) < 10
    assert max(counts) <= 5


def test_what_a_batch_leaves_out_is_that_cases_error(tmp_path: Path) -> None:
    batched(tmp_path, ["fine", "none", "bad"], 8)
    assert {case: (row[0], row[3]) for case, row in rows(tmp_path).items()} == {
        "t0": ("completed", None),
        "t1": ("error", "the batch's answer has no line with the id 't1'"),
        "t2": ("error", "cannot"),
    }


def test_iterations_of_a_case_are_in_batches_of_their_own(tmp_path: Path) -> None:
    assert batched(tmp_path, ["a", "b"], 8, "-n", "3").code == 0
    assert sum(map(int, (tmp_path / "runs.log").read_text().split())) == 6


def test_a_placeholder_of_one_case_is_refused_beside_batch(tmp_path: Path) -> None:
    target = {"name": "default", "provider": "command", "command": "x {prompt}", "batch": 2}
    tests = [{"id": "a", "input": "x", "assertions": ANY}]
    ended = run(tmp_path, {"targets": [target], "tests": tests})
    assert ended.code == 2
    assert "{prompt} is one case's and cannot stand beside `batch`" in ended.err


def test_a_fallback_stands_in_for_a_failing_program(tmp_path: Path) -> None:
    targets = [
        {"name": "default", "provider": "command", "command": "exit 3", "fallback_targets": ["b"]},
        {"name": "b", "provider": "mock", "response": "second"},
    ]
    tests = [{"id": "a", "input": "x", "assertions": [{"type": "equals", "value": "second"}]}]
    assert run(tmp_path, {"targets": targets, "tests": tests}).code == 0
    assert "exit code 3" in rows(tmp_path)["a"][2]["details"]["errors"][0]
