"""`evalcore dataset`: what its commands print, and that each says the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evalcore.cli.dataset import dataset
from evalcore.errors import EvalError


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def invoke(*arguments: str, store: str) -> str:
    result = CliRunner().invoke(dataset, [*arguments, "--store", store])
    if isinstance(result.exception, EvalError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def add(folder: Path, store: str, *rows: dict[str, Any], options: tuple[str, ...] = ()) -> str:
    path = folder / "cases.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return invoke("import", str(path), "--as", "questions", *options, store=store)


def test_importing_counts_what_is_new_and_what_is_there_already(tmp_path: Path, store: str) -> None:
    first, second = {"id": "a", "input": "1 + 1?"}, {"id": "b", "input": "2 + 2?"}
    out = add(tmp_path, store, first, second)
    assert out == "questions@1: 2 cases (2 added, 0 replaced, 0 unchanged)\n"
    assert add(tmp_path, store, first) == (
        "questions: nothing new (0 added, 0 replaced, 1 unchanged)\n"
    )
    changed = add(tmp_path, store, {"id": "b", "input": "3?"}, first, options=("--json",))
    assert json.loads(changed) == {
        "name": "questions", "version": 2, "added": 0, "replaced": 1, "unchanged": 1,
        "repeated": 0,
    }  # fmt: skip
    again = add(tmp_path, store, first, options=("--json",))
    assert json.loads(again)["version"] is None


def test_datasets_and_their_cases_are_listed(tmp_path: Path, store: str) -> None:
    assert invoke("list", store=store).startswith("no dataset in ")
    assert json.loads(invoke("list", "--json", store=store)) == []
    add(tmp_path, store, *({"id": f"c{n}", "input": f"question {n}"} for n in range(5)))
    assert invoke("list", store=store) == "questions  @1  5 cases  0 pending\n"
    (row,) = json.loads(invoke("list", "--json", store=store))
    assert (row["name"], row["version"], row["cases"], row["pending"]) == ("questions", 1, 5, 0)

    shown = invoke("show", "questions", "--offset", "1", "--limit", "2", store=store).splitlines()
    assert shown[0].startswith("* questions@1  5 cases  ")
    assert [line.split()[0] for line in shown[1:3]] == ["c1", "c2"]
    assert shown[3] == "  … 2 more: --offset 3"
    page = json.loads(invoke("show", "questions@1", "--json", "--limit", "2", store=store))
    assert [case["id"] for case in page["items"]] == ["c0", "c1"]
    assert [version["version"] for version in page["versions"]] == [1]


def test_a_difference_names_the_cases_and_a_dropped_version_is_gone(
    tmp_path: Path, store: str
) -> None:
    first = {"id": "a", "input": "1"}
    add(tmp_path, store, first)
    add(tmp_path, store, {"id": "a", "input": "2"}, {"id": "b", "input": "3"})
    out = invoke("diff", "questions@1", "questions@2", store=store)
    assert out == "+ b\n~ a\n1 added, 0 removed, 1 changed\n"
    difference = json.loads(invoke("diff", "questions@2", "questions@1", "--json", store=store))
    assert difference == {"added": [], "removed": ["b"], "changed": ["a"]}

    assert "--yes" in invoke("drop", "questions@1", store=store)
    invoke("diff", "questions@1", "questions@2", store=store)
    invoke("drop", "questions@1", "--yes", store=store)
    with pytest.raises(EvalError, match="questions"):
        invoke("diff", "questions@1", "questions@2", store=store)


@pytest.mark.parametrize("name", ["a@1", " ", "dataset:a"])
def test_a_name_that_is_none_is_refused_before_the_file_is_read(
    tmp_path: Path, store: str, name: str
) -> None:
    with pytest.raises(EvalError, match="invalid dataset name"):
        invoke("import", str(tmp_path / "missing.csv"), "--as", name, store=store)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl", ".parquet"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, store: str, suffix: str) -> None:
    missing, folder = tmp_path / f"missing{suffix}", tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(EvalError, match=f"missing{suffix}: no such file"):
        invoke("import", str(missing), "--as", "questions", store=store)
    with pytest.raises(EvalError, match=f"folder{suffix}: is a folder; name a file"):
        invoke("import", str(folder), "--as", "questions", store=store)
