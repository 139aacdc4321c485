"""Tests in JSONL files, tables and other files: what a line or a row becomes, and where it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evalcore.errors import LoadError
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.suite import Case, Suite
from tests.unit.formats.loading import SUITE, cases_of, load_text, places_of, problems_of, write


def line(case_id: str, **fields: Any) -> str:
    test = {"id": case_id, "input": "i", "output": "o", "expected_output": "o", **fields}
    return json.dumps({key: value for key, value in test.items() if value is not ...})


def rows(folder: Path, text: str, suite: str = "", name: str = "cases.csv") -> dict[str, Case]:
    write(folder, {name: text})
    if suite:
        return cases_of(folder, f"tests: {name}\n{suite}")
    return {case.id: case for case in load_suite(folder / name, LoadOptions()).cases}


def given(case: Case) -> str | None:
    return None if case.fixture is None else case.fixture.output


@pytest.mark.parametrize(
    ("output", "text"),
    [("yes", "yes"), ("", ""), ({"a": 1}, '{"a": 1}'), ([1, "é"], '[1, "é"]'), (4, "4")],
)
def test_the_output_of_a_line_is_its_given_answer(tmp_path: Path, output: Any, text: str) -> None:
    found = cases_of(tmp_path, line("a", output=output), "cases.jsonl")["a"]

    assert given(found) == text


def test_a_line_without_output_is_asked_of_the_target(tmp_path: Path) -> None:
    write(tmp_path, {"cases.yaml": "targets: [{name: default, provider: echo}]"})
    text = line("b", output=...)

    assert [given(case) for case in load_text(tmp_path, text, "cases.jsonl").cases] == [None]


@pytest.mark.parametrize("name", ["cases.jsonl", "cases.json"])
def test_an_output_that_is_null_is_a_mistake_of_its_row(tmp_path: Path, name: str) -> None:
    text = line("a", output=None)
    write(tmp_path, {name: text if name.endswith("l") else f"[{text}]"})
    suite = f"targets: [{{name: default, provider: echo}}]\ntests: {name}"
    (problem,) = problems_of(tmp_path, suite)

    assert (problem.line, problem.path.rpartition(".")[2]) == (1, "output")
    assert problem.message == "is null, which is no answer: leave it out, and the target is asked"


@pytest.mark.parametrize("name", ["cases.jsonl", "cases.json"])
def test_an_id_of_a_row_may_be_a_whole_number(tmp_path: Path, name: str) -> None:
    text = "[" * name.endswith("n") + line("a", id=17) + "]" * name.endswith("n")
    assert list(rows(tmp_path, text, "execution: {}", name)) == ["17"]
    (problem,) = problems_of(tmp_path, line("a", id=True), "b.jsonl")
    assert problem.path == "id"


TOO_LARGE = "a number of more than 64 bits; write it in quotes if it is meant as text"


@pytest.mark.parametrize(
    "number",
    ["1e999", "-1E+999", "1" + 400 * "0", "18446744073709551616"],
    ids=["exponent", "below", "digits", "65 bits"],
)
@pytest.mark.parametrize("field", ["input", "output", "metadata"])
def test_a_number_that_json_cannot_keep_is_a_mistake_of_its_line(
    tmp_path: Path, field: str, number: str
) -> None:
    text = line("a", **{field: {"n": [1, "NUMBER"]}}).replace('"NUMBER"', number)

    problems = problems_of(tmp_path, f"{line('b')}\n{text}", "cases.jsonl")

    assert places_of(problems) == [(2, f"{field}.n[1]")]
    assert problems[0].message == TOO_LARGE


def test_lines_in_utf_16_are_named_as_that_alone(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_bytes(f"{line('a')}\n{line('b')}\n".encode("utf-16"))
    with pytest.raises(LoadError) as caught:
        load_suite(tmp_path / "cases.jsonl", LoadOptions())

    assert [problem.message for problem in caught.value.problems] == ["is UTF-16; save it as UTF-8"]


@pytest.mark.parametrize("name", ["cases.yaml", "cases.eval.yaml", "cases.yml", "cases.eval.yml"])
def test_a_jsonl_file_has_its_defaults_in_the_yaml_file_beside_it(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path, {name: "name: mine\nexecution: {threshold: 0.3}"})
    found = load_text(tmp_path, line("a"), "cases.jsonl")

    assert found.definition.name == "mine"
    assert [case.threshold for case in found.cases] == [0.3]
    assert found.definition.source.path == "cases.jsonl"


@pytest.mark.parametrize(
    "tests",
    [
        "tests: cases.jsonl",
        "tests: ./cases.jsonl",
        "tests: file://cases.jsonl",
        "eval_cases: [more.jsonl, cases.jsonl]",
        "tests: '*.jsonl'",
    ],
)
def test_a_suite_that_names_the_file_as_its_tests_holds_its_defaults(
    tmp_path: Path, tests: str
) -> None:
    write(tmp_path, {"cases.eval.yaml": f"{tests}\nassertions: [{{type: contains, value: ZZZ}}]"})
    (found,) = load_text(tmp_path, line("a"), "cases.jsonl").cases

    assert [one.params.get("value") for one in found.assertions][-1] == "ZZZ"


def test_lines_end_in_any_way_and_the_first_may_have_a_mark(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_bytes(
        b"\xef\xbb\xbf" + line("a").encode() + b"\r\n  \r\n" + line("b").encode()
    )

    found = load_suite(tmp_path / "cases.jsonl", LoadOptions())

    assert [case.id for case in found.cases] == ["a", "b"]


def test_mistakes_in_lines_have_the_line_and_the_path(tmp_path: Path) -> None:
    text = "\n".join(
        [line("a"), "", "{", line("a"), line("c", input=3), line("d", assertions=[{"type": "x"}])]
    )

    assert places_of(problems_of(tmp_path, text, "cases.jsonl")) == [
        (3, ""),
        (4, "id"),
        (5, "input"),
        (6, "assertions[0].type"),
    ]


def test_at_most_a_hundred_mistakes_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "null\n" * 2_500, "cases.jsonl")

    assert [problem.line for problem in found[:100]] == list(range(1, 101))
    assert [problem.message for problem in found[100:]] == ["and 2400 more mistakes"]


CSV = """\
id,input,output,expected_output,criteria,tags,threshold,contains,icontains-any,note,metadata
one,"Two
lines",Yes,yes,kind,"a, b",0.5,Y,"x|y",free,"{""n"": 1}"
two,hi,,,kind,,,,"[""p|q""]",,
"""


def test_columns_named_like_fields_are_those_fields(tmp_path: Path) -> None:
    one = rows(tmp_path, CSV)["one"]

    assert (one.input, given(one), one.expected_output) == ("Two\nlines", "Yes", "yes")
    assert (one.criteria, one.tags, one.threshold) == ("kind", ("a", "b"), 0.5)


def test_columns_named_like_assertions_add_them(tmp_path: Path) -> None:
    one, two = rows(tmp_path, CSV).values()

    assert [(a.type, a.params.get("value", a.params.get("values"))) for a in one.assertions] == [
        ("contains", "Y"),
        ("icontains-any", ["x", "y"]),
    ]
    assert [a.params.get("values") for a in two.assertions] == [["p|q"]]


def test_columns_may_be_written_with_underscores(tmp_path: Path) -> None:
    text = "id,input,output,starts_with,words\na,b,c,d,x|y\n"
    found = rows(tmp_path, text, "columns: {contains_all: words}")["a"]

    assert [a.type for a in found.assertions] == ["starts-with", "contains-all"]
    assert (found.assertions[1].params["values"], found.metadata) == (["x", "y"], {})


def test_other_columns_are_metadata(tmp_path: Path) -> None:
    one, two = rows(tmp_path, CSV).values()

    assert one.metadata == {"n": 1, "note": "free"}
    assert two.metadata == {}


def test_an_empty_cell_is_absent_but_an_empty_output_is_an_answer(tmp_path: Path) -> None:
    two = rows(tmp_path, CSV)["two"]

    assert given(two) == ""
    assert two.expected_output is None


def test_cells_are_text_whatever_they_look_like(tmp_path: Path) -> None:
    found = rows(tmp_path, "id,input,output,equals,note\n007,1e3,true,null,5\n")["007"]

    assert (found.input, given(found), found.metadata) == ("1e3", "true", {"note": "5"})
    assert found.assertions[0].params["value"] == "null"


@pytest.mark.parametrize(
    "before", ["\n", " \r\n\r\n", ",,,\n\n", ";\n", "sep=,\r\n", '"sep=,"\n\n']
)
def test_lines_without_text_and_the_one_that_names_the_separator_may_stand_before_the_header(
    tmp_path: Path, before: str
) -> None:
    text = f"{before}id,input,output,equals\na,b;c;d;e,o,o\n"

    assert rows(tmp_path, text)["a"].input == "b;c;d;e"
    problems = problems_of(tmp_path, f"{text}a,b,o,o\n", "cases.csv")
    first = before.count("\n") + 2
    assert places_of(problems) == [(first + 1, "id")]
    assert f"first at line {first}" in problems[0].message


def test_a_mistake_of_the_header_has_its_line(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, "sep=,\n\nid,input,input,x\n1,i,i,x\n", "cases.csv")
    lacking = problems_of(tmp_path, "\n\nid,output\n1,i\n", "cases.csv")

    assert [problem.line for problem in (problems[0], *lacking)] == [3, 3]


@pytest.mark.parametrize(
    "delimiter", [",", ";", "\t", "|"], ids=["comma", "semicolon", "tab", "bar"]
)
def test_the_header_shows_what_separates_cells(tmp_path: Path, delimiter: str) -> None:
    text = delimiter.join(["id", "input", "output", "equals"]) + "\n" + delimiter.join("abcd")

    assert list(rows(tmp_path, text)) == ["a"]


def test_columns_maps_fields_to_other_names(tmp_path: Path) -> None:
    text = "key,question,answer,must say,level\na,b,c,d,e\n"
    suite = (
        "columns: {id: key, input: question, output: answer, contains: must say, "
        "metadata.difficulty: level}"
    )
    found = rows(tmp_path, text, suite)["a"]

    assert (found.input, given(found)) == ("b", "c")
    assert found.assertions[0].params["value"] == "d"
    assert found.metadata == {"difficulty": "e"}


def test_a_column_may_be_several_fields(tmp_path: Path) -> None:
    suite = "columns: {id: question, input: question, output: answer, equals: answer}"
    found = rows(tmp_path, "question,answer\nwhy,because\n", suite)["why"]

    assert (found.input, given(found), found.metadata) == ("why", "because", {})
    assert found.assertions[0].params["value"] == "because"


TABLE = [
    {
        "key": 7,
        "question": "b",
        "answer": {"n": 1},
        "must say": "n",
        "words": ["1", "x"],
        "lang": 2,
    },
    {"key": "two", "question": {"q": 1}, "answer": None, "lang": None},
]
COLUMNS = (
    "columns: {id: key, input: question, output: answer, contains: must say, contains-any: words}"
)


def in_lines(table: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in table)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cases.json", json.dumps(TABLE)),
        ("cases.json", json.dumps({"tests": TABLE})),
        ("cases.jsonl", in_lines(TABLE)),
    ],
    ids=["list", "below a key", "lines"],
)
def test_json_is_a_table_where_columns_are_named(tmp_path: Path, name: str, text: str) -> None:
    suite = (
        f"{COLUMNS}\ntargets: [{{name: default, provider: echo}}]\nassertions: [{{type: is-json}}]"
    )
    seven, two = rows(tmp_path, text, suite, name).values()

    assert (seven.id, seven.input, given(seven)) == ("7", "b", '{"n": 1}')
    assert [a.type for a in seven.assertions] == ["contains", "contains-any", "is-json"]
    assert seven.assertions[1].params["values"] == ["1", "x"]
    assert (seven.metadata, two.metadata) == ({"lang": 2}, {})
    assert (two.input, given(two)) == ({"q": 1}, None)


def test_rows_of_json_may_hold_what_no_cell_does(tmp_path: Path) -> None:
    row = {"key": "a", "input": "i", "fixtures": {"output": "o"}, "execution": {"threshold": 0.25}}
    text = json.dumps([row | {"assert": [{"type": "contains", "value": "o"}]}])
    found = rows(tmp_path, text, "columns: {id: key}", "cases.json")["a"]

    assert (given(found), found.threshold, found.metadata) == ("o", 0.25, {})
    assert [a.type for a in found.assertions] == ["contains"]


def test_the_defaults_beside_lines_may_name_columns(tmp_path: Path) -> None:
    write(tmp_path, {"cases.yaml": COLUMNS})

    (found,) = load_text(tmp_path, in_lines(TABLE[:1]), "cases.jsonl").cases
    assert (found.id, given(found)) == ("7", '{"n": 1}')


def test_mistakes_in_rows_of_json_have_their_lines(tmp_path: Path) -> None:
    rest = '{"key": "b", "input": "i", "output": "o", "fixtures": {"output": "o"}, "words": "[1"}'
    text = f'[{{"key": "a", "input": "i", "output": "o", "words": ""}},\n5,\n{rest}]'
    write(tmp_path, {"cases.json": text, "cases.jsonl": text[1:-1].replace(",\n", "\n")})
    suite = "columns: {id: key, contains: words, equals: wrds, metadata.x: key}\ntests: "

    for name in ("cases.json", "cases.jsonl"):
        assert [(p.line, p.path, p.message) for p in problems_of(tmp_path, suite + name)] == [
            (1, "columns.equals", f"{tmp_path / name} has no column 'wrds'. Did you mean 'words'?"),
            (1, "words", "test 'a': must not be empty"),
            (2, "", "expected a mapping, got the number 5"),
            (3, "output", "is given here and as 'fixtures'; remove one of them"),
        ]


def test_mistakes_in_rows_have_the_line_on_which_the_row_begins(tmp_path: Path) -> None:
    text = """\
        id,input,output,contains,threshold
        a,"one
        two",x,y,0.5
        b,c,x,y,high
        ,c,x,y,
        a,c,x,y,
        """

    assert places_of(problems_of(tmp_path, text, "cases.csv")) == [
        (4, "threshold"),
        (5, "id"),
        (6, "id"),
    ]


def test_mistakes_in_rows_name_the_tables_columns(tmp_path: Path) -> None:
    write(tmp_path, {"cases.csv": 'key,input,output,words,limit\na,b,c,"[1",2\n'})
    text = "tests: cases.csv\ncolumns: {id: key, contains-any: words, threshold: limit}"

    assert sorted(places_of(problems_of(tmp_path, text))) == [(2, "limit"), (2, "words")]


def test_broken_quoting_is_reported_beside_the_mistakes_before_it(tmp_path: Path) -> None:
    text = 'id,input,output,contains\n,b,c,d\na,"b,c,d\n'

    assert places_of(problems_of(tmp_path, text, "cases.csv")) == [(2, "id"), (3, "")]


def parquet(folder: Path, query: str) -> Suite:
    path = folder / "cases.parquet"
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return load_suite(path, LoadOptions())


def test_parquet_keeps_the_types_of_its_columns(tmp_path: Path) -> None:
    query = """
        SELECT 7 AS id, {'q': 1, 'when': DATE '2024-05-06'} AS input, 'o' AS output,
               ['a', 'b'] AS tags, 0.25 AS threshold, ['x', 'y'] AS "contains-any",
               [{'type': 'equals', 'value': 'o'}] AS assertions, 3 AS n, NULL AS absent
        """
    (case,) = parquet(tmp_path, query).cases

    assert (case.id, case.input) == ("7", {"q": 1, "when": "2024-05-06"})
    assert (case.tags, case.threshold, case.metadata) == (("a", "b"), 0.25, {"n": 3})
    assert [a.type for a in case.assertions] == ["contains-any", "equals"]


def test_a_null_output_in_parquet_is_no_answer(tmp_path: Path) -> None:
    write(tmp_path, {"cases.yaml": "targets: [{name: default, provider: echo}]"})
    query = "SELECT 'a' AS id, 'i' AS input, NULL::VARCHAR AS output, 'i' AS equals"
    (case,) = parquet(tmp_path, query).cases

    assert case.fixture is None


def test_tests_may_stand_in_several_files_and_patterns(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "b/two.jsonl": line("two"),
            "b/three.jsonl": line("three"),
            "one.yaml": "- {id: one, input: i, criteria: c, fixtures: {output: x}}",
            "four.json": '{"tests": [{"id": "four", "input": "i", "criteria": "c", '
            '"fixtures": {"output": "x"}}]}',
        },
    )
    text = "tests: [one.yaml, 'file://b/*.jsonl', four.json]"

    assert list(cases_of(tmp_path, text)) == ["one", "three", "two", "four"]


def test_files_of_tests_are_looked_for_up_to_the_repositorys_root(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", "shared.jsonl": line("a")})

    assert list(cases_of(tmp_path, "tests: shared.jsonl", f"deep/er/{SUITE}")) == ["a"]


def test_the_same_id_in_two_files_names_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"one.jsonl": "\n" + line("a"), "two.yaml": f"\n\n- {line('b')}\n"})
    text = "tests: [one.jsonl, again.jsonl, two.yaml]"
    write(tmp_path, {"again.jsonl": line("a")})
    first, second = problems_of(tmp_path, text)

    assert str(first) == "again.jsonl:1: id: duplicate test id 'a' (first at line 2 of one.jsonl)"
    assert second.file == "two.yaml"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_rows_of_a_pipe_or_a_device_are_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)

    with pytest.raises(LoadError, match="is a pipe or a device; save its rows as a file"):
        load_suite(tmp_path / name, LoadOptions())


@pytest.mark.parametrize(
    ("column", "cell", "type_", "negate"),
    [
        ("not-contains", "x", "not-contains", True),
        ("not_starts_with", "x", "not-starts-with", True),
        ("is-json", "true", "is-json", False),
        ("not-is-json", "Yes", "not-is-json", True),
    ],
)
def test_columns_named_like_negated_or_complete_assertions_add_them(
    tmp_path: Path, column: str, cell: str, type_: str, negate: bool
) -> None:
    text = f"id,input,output,criteria,{column}\na,i,o,c,{cell}\nb,i,o,c,\n"
    found, without = cases_of(tmp_path, text, "cases.csv").values()

    assert [(each.type, each.negate) for each in found.assertions] == [(type_, negate)]
    assert [each.type for each in without.assertions] == ["llm-grader"]


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        ("Equals", "'equals'"),
        ("contain-all", "'contains-all'"),
        ("notContains", "'not-contains'"),
        ("isJson", "'is-json'"),
        ("expectedOutput", "'expected_output'"),
        ("latency", "'assertions'"),
        ("word-count", "'assertions'"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_a_column_that_may_mean_a_check_is_a_mistake(
    tmp_path: Path, column: str, meant: str, suffix: str
) -> None:
    name, suite = f"rows.{suffix}", f"tests: rows.{suffix}"
    if suffix == "csv":
        write(tmp_path, {name: f"id,input,output,contains,{column}\na,i,o,o,1\nb,i,o,o,2\n"})
    elif suffix == "json":
        row = {"id": "a", "input": "i", "output": "o", "contains": "o", column: 1}
        write(tmp_path, {name: json.dumps([row])})
        suite += "\ncolumns: {tags: input}"
    else:
        select = (
            f"SELECT 'a' AS id, 'i' AS input, 'o' AS output, 'o' AS contains, 1 AS \"{column}\""
        )
        duckdb.sql(select).write_parquet(str(tmp_path / name))
    (problem,) = problems_of(tmp_path, suite)

    assert problem.path == column
    assert meant in problem.message
    assert f"'metadata.{column}'" in problem.message


@pytest.mark.parametrize("column", ["vars", "fixtures", "execution", "turns", "Input Files"])
def test_a_column_of_what_no_cell_holds_is_a_mistake(tmp_path: Path, column: str) -> None:
    write(tmp_path, {"rows.csv": f"id,input,output,contains,{column}\na,i,o,o,1\n"})
    (problem,) = problems_of(tmp_path, "tests: rows.csv")

    assert problem.path == column
    assert "which no cell can hold: write the tests as YAML or JSON" in problem.message


def test_a_cell_of_blanks_asks_for_no_check(tmp_path: Path) -> None:
    text = "id,input,output,contains,equals,tags\na,i,o,o, ,  \n"
    (found,) = cases_of(tmp_path, text, "cases.csv").values()

    assert [each.type for each in found.assertions] == ["contains"]
    assert found.tags == ()
