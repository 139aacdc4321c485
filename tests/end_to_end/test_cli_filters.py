"""Filters over several suites: those of which nothing is left are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import evalcore

CASE = "tests: [{id: ID, input: a, tags: [TAG], fixtures: {output: b}, assertions: [b]}]"
CHECKED = "{type: contains, value: b}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, tag in (("first", "slow"), ("second", "smoke")):
        text = CASE.replace("ID", name).replace("TAG", tag).replace("[b]", f"[{CHECKED}]")
        (tmp_path / f"{name}.eval.yaml").write_text(text, "utf-8")
    (tmp_path / "both.py").write_text(
        "from evalcore import define_suite\n"
        "def suites():\n"
        "    for name in ('first', 'second'):\n"
        "        check = {'type': 'output.contains', 'path': 'output', 'value': 'x'}\n"
        "        case = {'id': name, 'input': 'x', 'assertions': [check]}\n"
        "        yield define_suite(name, lambda text: text, [case], ['v'])\n",
        "utf-8",
    )
    return tmp_path


@pytest.mark.parametrize("filters", [("--case", "second"), ("--tag", "smoke")])
def test_a_suite_of_which_nothing_is_left_is_left_out_with_a_warning(
    folder: Path, filters: tuple[str, str]
) -> None:
    files = ("first.eval.yaml", "second.eval.yaml")
    ended = evalcore("run", "--json", *filters, *files, store=folder / "store", cwd=folder)
    assert ended.code == 0, ended.err
    assert [report["suite"] for report in ended.lines] == ["second"]
    assert ended.err.startswith("Warning: first.eval.yaml: left out: --"), ended.err
    assert evalcore("run", "--strict", *filters, *files, store=folder, cwd=folder).code == 2


def test_a_suite_of_a_python_file_is_left_out_too(folder: Path) -> None:
    ended = evalcore("run", "--json", "--case", "second", "both.py", store=folder, cwd=folder)
    assert ended.code == 0, ended.err
    assert [report["suite"] for report in ended.lines] == ["second"]
    assert "Warning: both.py: suite 'first': left out: --case: no case has the id" in ended.err


@pytest.mark.parametrize("files", [("first.eval.yaml", "second.eval.yaml"), ("both.py",)])
def test_filters_that_leave_no_case_of_any_suite_run_nothing(
    folder: Path, files: tuple[str, ...]
) -> None:
    ended = evalcore("run", "--case", "third", *files, store=folder / "store", cwd=folder)
    assert ended.code == 2
    assert ended.err.count("--case: no case has the id 'third'") == 2
    assert not (folder / "store").exists()


def test_every_file_is_validated_with_what_is_left_of_it(folder: Path) -> None:
    files = ("first.eval.yaml", "second.eval.yaml")
    ended = evalcore("validate", "--case", "second", *files, cwd=folder)
    assert ended.code == 2
    assert "first.eval.yaml: --case: no case has the id 'second'" in ended.err
    assert ended.out == "second.eval.yaml: valid, test-file 'second', 1 case\n"


@pytest.mark.parametrize("command", ["run", "validate", "plan"])
def test_a_file_that_is_not_there_is_told_with_the_nearest_name(folder: Path, command: str) -> None:
    ended = evalcore(command, "first.eval.yml", cwd=folder)
    assert ended.code == 2
    assert "first.eval.yml: no such file. Did you mean 'first.eval.yaml'?" in ended.err


@pytest.mark.parametrize("listed", ["", ",", " , "])
def test_a_list_without_a_case_is_a_mistake_not_every_case(folder: Path, listed: str) -> None:
    command = ("run", "--cases", listed, "first.eval.yaml")
    ended = evalcore(*command, store=folder / "store", cwd=folder)
    assert ended.code == 2
    assert "--cases is empty" in ended.err
    assert not (folder / "store").exists()
