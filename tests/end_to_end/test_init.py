"""`evalcore init` writes suites that run as they are, and overwrites nothing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jsonschema
import pytest
import yaml

from evalcore.cli.start import PYTHON, STARTERS, starter_files
from evalcore.model.suite import Format
from tests.support.shell import evalcore


@pytest.mark.parametrize(
    "format_",
    [
        name if name in {"test-file", "python"} else pytest.param(name, marks=pytest.mark.extended)
        for name in STARTERS
    ],
)
def test_the_commands_that_init_prints_work_as_they_are(format_: str, tmp_path: Path) -> None:
    ended = evalcore("init", "evals", "--format", format_, "--name", "my-first", cwd=tmp_path)
    assert ended.code == 0, ended.err
    run, report = ended.out.splitlines()
    for command in (run, report):
        program, *arguments = shlex.split(command)
        assert program == "evalcore"
        ended = evalcore(*arguments, cwd=tmp_path)
        assert ended.code == 0, ended.err
    assert "my-first" in ended.out


def test_the_name_is_quickstart_by_default(tmp_path: Path) -> None:
    ended = evalcore("init", "--format", "workflow-harness", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("evalcore run quickstart.eval.yaml\n")


def test_every_format_has_a_starter() -> None:
    assert set(STARTERS) == {*Format, PYTHON}


@pytest.mark.parametrize("format_", [name for name in STARTERS if name != PYTHON])
def test_a_starter_is_valid_by_the_schema_that_it_names(format_: str) -> None:
    files = starter_files(format_, "first")
    text = files["first.eval.yaml"].decode()
    assert text.startswith(f"# yaml-language-server: $schema=./{format_}.schema.json\n")
    schema = json.loads(files[f"{format_}.schema.json"])
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))


def test_a_second_suite_stands_beside_the_first_and_neither_is_overwritten(tmp_path: Path) -> None:
    flags = ("init", "--format", "test-file", "--name")
    assert evalcore(*flags, "a", cwd=tmp_path).code == 0
    (tmp_path / "a_target.py").write_text("mine")
    assert evalcore(*flags, "b", cwd=tmp_path).code == 0
    (tmp_path / "a.eval.yaml").unlink()
    refused = evalcore(*flags, "a", cwd=tmp_path)
    assert refused.code == 2
    assert "nothing was written: a_target.py would be overwritten" in refused.err
    assert (tmp_path / "a_target.py").read_text() == "mine"
    assert not (tmp_path / "a.eval.yaml").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--format", "yaml", "--name", "a"], "formats: test-file, suite, python,"),
        (["--format", "suite", "--name", "../a"], "'../a' is no name of a suite"),
        (["--format", "suite", "--name", "json"], "standard library has a module json"),
        (
            ["--format", "suite", "--name", "a", "file/below"],
            "cannot be written to: Not a directory",
        ),
    ],
)
def test_what_init_cannot_do_is_one_message(flags: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = evalcore("init", *flags, cwd=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
