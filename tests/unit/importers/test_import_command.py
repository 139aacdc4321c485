"""`evalcore import`: what it writes, says and refuses."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from evalcore.importers import registry
from evalcore.importers.files import read_foreign_file
from tests.support.conversions import FILES, converted
from tests.support.shell import evalcore


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (f"{source.replace('-', '_')}/{name}", source)
        for source, names in {
            "deepeval": ("goldens.json", "goldens.csv", "run.json"),
            "promptfoo": ("greetings.yaml", "models.yaml", "chat.yaml"),
            "inspect": ("basic.json", "capitals.jsonl", "riddles.csv", "choices.json"),
            "pydantic-evals": ("capitals.yaml", "orders.yaml", "tone.json"),
            "langsmith": ("questions.jsonl", "fields.jsonl", "experiment.csv"),
            "braintrust": ("questions.jsonl", "experiment.jsonl", "export.json"),
        }.items()
        for name in names
    ],
)
def test_the_program_of_a_file_is_recognised_by_its_content(name: str, source: str) -> None:
    file = read_foreign_file(FILES / name)
    assert registry.recognise_source(file) == source


def test_it_writes_a_valid_suite_and_overwrites_nothing_without_force(tmp_path: Path) -> None:
    shutil.copy(FILES / "braintrust/questions.jsonl", tmp_path)
    first = evalcore("import", "questions.jsonl", cwd=tmp_path)
    assert first.code == 0
    assert first.out == (
        "evalcore validate questions.eval.yaml\nevalcore run questions.eval.yaml\n"
    )
    assert "wrote questions.eval.yaml\n2 cases\n" in first.err
    assert "- the file does not say what answers: the target `echo`" in first.err
    assert evalcore("validate", "questions.eval.yaml", cwd=tmp_path).code == 0
    suite = tmp_path / "questions.eval.yaml"
    suite.write_text("mine")
    again = evalcore("import", "questions.jsonl", cwd=tmp_path)
    assert again.code == 2
    assert "questions.eval.yaml would be overwritten" in again.err
    assert suite.read_text() == "mine"
    forced = evalcore(
        "import", "questions.jsonl", "--force", "--target", "app:answer", cwd=tmp_path
    )
    assert forced.code == 0
    assert "callable: app:answer" in suite.read_text()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "name: x\n", "a.yaml: of no program whose files are imported"),
        ("a.jsonl", '{"id": "a", "input": "b", "criteria": "c"}', "is a test file, which"),
        ("a.toml", "x = 1", "a.toml: is none of .yaml, .yml, .json"),
        ("a.jsonl", '{"input": 1}\n{', "a.jsonl:2: not valid JSON"),
        ("a.eval", "PK", "a.eval: is no archive that can be read"),
    ],
)
def test_a_file_of_something_else_is_one_clear_message(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    ended = evalcore("import", name, cwd=tmp_path)
    assert ended.code == 2
    assert message in ended.err
    assert ended.out == ""
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_value_that_no_suite_takes_is_told_with_the_line_of_the_suite(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "prompts: [a]\nproviders: [{id: 'openai:gpt', config: {temperature: warm}}]\n"
        "tests: [{assert: [{type: contains, value: a}]}]\n"
    )
    ended = evalcore("import", "a.yaml", cwd=tmp_path)
    assert ended.code == 2
    assert re.search(r"a\.eval\.yaml:\d+: targets\[0\]\.temperature: ", ended.err)
    assert ended.out == ""


def test_a_suite_elsewhere_names_the_files_that_it_imports(tmp_path: Path) -> None:
    source = FILES / "promptfoo/json_answers.yaml"
    ended = evalcore("import", source, "--out", tmp_path / "x.eval.yaml", cwd=tmp_path)
    assert ended.code == 0
    assert "the suite imports grade.py: copy that into its own folder, too" in ended.err


def test_columns_of_rows_may_have_other_names(tmp_path: Path) -> None:
    rows = '{"question": "Capital of Peru?", "answer": "Lima", "level": 1}\n'
    (tmp_path / "quiz.jsonl").write_text(rows, "utf-8")

    unknown = evalcore("import", "quiz.jsonl", cwd=tmp_path)
    assert unknown.code == 2
    assert "they have question, answer, level" in unknown.err
    assert "--column NAME=input --column NAME=target" in unknown.err

    columns = ("--column", "question=input", "--column", "answer=target")
    named = evalcore("import", "quiz.jsonl", *columns, cwd=tmp_path)
    assert named.code == 0
    assert "- no fields of a sample, kept as metadata: level\n" in named.err
    text = (tmp_path / "quiz.eval.yaml").read_text("utf-8")
    assert "(inspect)" in text
    assert "  input: Capital of Peru?\n  expected_output: Lima\n" in text
    assert "  metadata:\n    level: 1\n" in text


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("ask=input", "quiz.jsonl has no 'ask': its rows have question, answer"),
        ("question", "write NAME=FIELD"),
    ],
)
def test_a_wrong_column_is_one_message(column: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "quiz.jsonl").write_text('{"question": "a", "answer": "b"}\n', "utf-8")
    ended = evalcore("import", "quiz.jsonl", "--column", column, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


# An answer and an id of each kind that Python takes for false; "" of a CSV cell is no answer.
EMPTY = [
    (
        "run.json",
        '{"testCases": [{"name": "a", "input": "i", "actualOutput": "", "expectedOutput": "x"}]}',
    ),
    ("rows.jsonl", '{"id": 0, "input": "i", "expected": "x", "output": ""}'),
    ("rows.jsonl", '{"id": 0, "input": "i", "expected": 1, "output": 0}'),
    ("rows.jsonl", '{"id": 0, "input": "i", "expected": true, "output": false}'),
    ("rows.jsonl", '{"id": 0, "inputs": "i", "outputs": "", "reference_outputs": "x"}'),
    (
        "rows.jsonl",
        '{"id": 0, "input": "i", "expected": "x", "output": {"role": "assistant", "content": ""}}',
    ),
]


@pytest.mark.parametrize(("name", "text"), EMPTY, ids=[text[:60] for _, text in EMPTY])
def test_an_answer_that_is_empty_or_zero_is_graded_as_it_was_recorded(
    name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text, "utf-8")

    suite, _ = converted(None, name, tmp_path)

    written = yaml.safe_load(suite.read_text("utf-8"))
    (case,) = written.get("tests") or written["cases"]
    assert case["id"] in ("0", "a")
    assert case["fixtures"]["output"] in ("", 0)
    assert evalcore("run", suite, cwd=tmp_path).code == 1
