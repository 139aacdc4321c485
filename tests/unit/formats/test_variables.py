"""`${{ NAME }}`: which variables a suite may read, and what stands for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from evalcore.checks.program import with_values
from tests.unit.formats.loading import cases_of, load_text, problems_of, write


def text_of(folder: Path, written: str, **options: Any) -> object:
    test = f"tests: [{{id: a, input: '{written}', criteria: c, fixtures: {{output: x}}}}]"
    return cases_of(folder, test, **options)["a"].input


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("${{ EVAL_A }}", "one"),
        ("${{EVAL_A}}", "one"),
        ("<${{ EVAL_A }}${{ EVAL_B }}>", "<onetwo>"),
        ("${{ EVAL_C:-three }}", "three"),
        ("${{ EVAL_C:- }}", ""),
        ("${{ EVAL_A:-three }}", "one"),
        ("${{ EVAL_EMPTY:-three }}", ""),
        ("${{ github.ref }}", "${{ github.ref }}"),
        ("${EVAL_A} $EVAL_A {{EVAL_A}}", "${EVAL_A} $EVAL_A {{EVAL_A}}"),
    ],
)
def test_a_reference_becomes_its_value(tmp_path: Path, written: str, text: str) -> None:
    environment = {"EVAL_A": "one", "EVAL_B": "two", "EVAL_EMPTY": ""}

    assert text_of(tmp_path, written, environment=environment) == text


@pytest.mark.parametrize(
    ("files", "readable", "value"),
    [
        pytest.param({".env": "SECRET=file\n"}, (), "file", id="named in .env"),
        pytest.param({"../.env": "SECRET=above\n"}, (), "above", id="in a folder above"),
        pytest.param({}, ("SECRET",), "environment", id="configured"),
    ],
)
def test_names_on_the_list_may_be_read(
    tmp_path: Path, files: dict[str, str], readable: tuple[str, ...], value: str
) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (tmp_path / ".git").mkdir()
    write(folder, files)
    environment = {"SECRET": "environment"} if readable else {}

    found = text_of(
        folder, "${{ SECRET }}", readable_names=frozenset(readable), environment=environment
    )

    assert found == value


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    write(tmp_path, {".env": "NAME=file\n"})

    assert text_of(tmp_path, "${{ NAME }}", environment={"NAME": "process"}) == "process"


def test_any_other_variable_may_not_be_read_even_with_a_default(tmp_path: Path) -> None:
    text = "tests:\n- {id: a, input: '${{ HOME:-x }}', criteria: c, fixtures: {output: x}}"
    (problem,) = problems_of(tmp_path, text, environment={"HOME": "/root"})

    assert (problem.line, problem.path) == (2, "tests[0].input")
    assert "may not read the environment variable HOME" in problem.message
    assert "/root" not in str(problem)


def test_a_missing_variable_is_a_mistake(tmp_path: Path) -> None:
    text = "tests: [{id: a, input: '${{ EVAL_NO }}', criteria: c, fixtures: {output: x}}]"
    (problem,) = problems_of(tmp_path, text)

    assert problem.message == (
        "the environment variable EVAL_NO is not set; set it or write a default: ${{ EVAL_NO:-… }}"
    )


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("NAME=plain", "plain"),
        ("export NAME = spaced ", "spaced"),
        ("NAME='single # kept'", "single # kept"),
        ('NAME="double"', "double"),
        ("NAME=cut # comment", "cut"),
        ("# NAME=no\nNAME=yes", "yes"),
        ('NAME="double" # comment', "double"),
        ("NAME='a#b'# comment", "a#b"),
        ('NAME="two\nOTHER=lines" # comment', "two\nOTHER=lines"),
        ("NAME=a\r\nOTHER=b", "a"),
    ],
)
def test_lines_of_an_env_file(tmp_path: Path, line: str, value: str) -> None:
    write(tmp_path, {".env": line + "\n"})

    assert text_of(tmp_path, "${{ NAME }}") == value


ROW = '{"id": "a", "input": "${{ NAME }} $${{ OTHER", "output": "x", "criteria": "c"}'
TESTS = "targets: [{name: default, provider: echo}]\ntests: "
CASES = "name: s\nflow: {name: f, provider: echo}\nvariants: [{id: v}]\ncases: "
CASE = "{id: a, input: '${{ NAME }} $${{ OTHER', assertions: [{type: contains, value: x}]}"


@pytest.mark.parametrize(
    ("suite", "name", "rows"),
    [
        pytest.param(None, "rows.jsonl", ROW, id="lines"),
        pytest.param(
            None, "rows.csv", "id,input,output,criteria\na,${{ NAME }} $${{ OTHER,x,c\n", id="CSV"
        ),
        pytest.param(TESTS, "rows.jsonl", ROW, id="lines that a suite names"),
        pytest.param(TESTS, "rows.json", f"[{ROW}]", id="a list of JSON"),
        pytest.param(TESTS, "rows.parquet", "${{ NAME }} $${{ OTHER", id="Parquet"),
        pytest.param(CASES, "cases.yaml", f"[{CASE}]", id="cases in YAML"),
    ],
)
def test_a_reference_in_a_row_of_data_is_text(
    tmp_path: Path, suite: str | None, name: str, rows: str
) -> None:
    write(tmp_path, {".env": "NAME=value\n", name: rows})
    if name.endswith(".parquet"):
        select = f"SELECT 'a' AS id, '{rows}' AS input, 'x' AS contains"
        duckdb.sql(select).write_parquet(str(tmp_path / name))
    cases = cases_of(tmp_path, rows, name) if suite is None else cases_of(tmp_path, suite + name)

    assert cases["a"].input == "${{ NAME }} $${{ OTHER"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("$${{ EVAL_A }}", "${{ EVAL_A }}"),
        ("$${{ HOME }} and ${{ EVAL_A }}", "${{ HOME }} and one"),
        ("$$${{ EVAL_A }}", "$${{ EVAL_A }}"),
        ("$${{ github.ref }} costs $$5", "${{ github.ref }} costs $$5"),
        ("$${{", "${{"),
        ("${{ EVAL_A }}$${{ EVAL_A }}${{ EVAL_A }}", "one${{ EVAL_A }}one"),
        ("${{ EVAL_C:-$${{ }}", "$${{"),
    ],
)
def test_a_second_dollar_makes_a_reference_text(tmp_path: Path, written: str, text: str) -> None:
    environment = {"EVAL_A": "one"}
    suite = f"{CASES}[{{id: a, input: '{written}', assertions: [{{type: contains, value: x}}]}}]"

    assert text_of(tmp_path, written, environment=environment) == text
    assert cases_of(tmp_path, suite, environment=environment)["a"].input == text


def test_a_row_gives_a_program_that_its_suite_declares_no_variable(tmp_path: Path) -> None:
    assertion = '{"type": "count", "words": ["${{ NAME }}"]}'
    row = f'{{"id": "a", "input": "b", "output": "c", "assertions": [{assertion}]}}'
    declared = (
        "targets: [{name: default, provider: echo}]\nassertions: [{type: count}]\ntests: rows.jsonl"
    )
    write(
        tmp_path,
        {".env": "NAME=value\n", ".agentv/assertions/count.py": "print(1)", "rows.jsonl": row},
    )
    grader, _ = cases_of(tmp_path, declared)["a"].assertions

    assert with_values(grader.params["config"], tmp_path) == {"words": ["${{ NAME }}"]}


def test_a_shared_targets_file_needs_only_the_variables_of_what_is_used(tmp_path: Path) -> None:
    targets = """\
        - {name: used, provider: mock, response: "${{ EVAL_A }}"}
        - {name: unused, provider: openai, api_key: "${{ EVAL_KEY }}"}
        """
    write(tmp_path, {"targets.yaml": targets})
    text = "execution: {target: used}\ntests: [{id: a, input: b, criteria: c}]"
    found = load_text(tmp_path, text, environment={"EVAL_A": "one"}).definition

    assert {name: target.options for name, target in found.targets.items()} == {
        "used": {"response": "one"}
    }
