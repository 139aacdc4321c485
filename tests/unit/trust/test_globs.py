"""Patterns list nothing outside the root, and follow no link out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import EvalError, NotAllowedError
from evalcore.trust.files import matching_files

FILES = (
    "a.jsonl",
    "b.jsonl",
    "deep/c.jsonl",
    "deep/er/d.jsonl",
    ".hidden/e.jsonl",
    "deep/.f.jsonl",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with files of tests, and a neighbour that is none of its business."""
    for name in FILES:
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    (tmp_path / "neighbour").mkdir()
    (tmp_path / "neighbour" / "secret.jsonl").write_text("{}\n")
    return tmp_path / "repository"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.jsonl", ["a.jsonl", "b.jsonl"]),
        ("[b-z].jsonl", ["b.jsonl"]),
        ("?.jsonl", ["a.jsonl", "b.jsonl"]),
        ("*/*.jsonl", ["deep/c.jsonl"]),
        ("deep/**/*.jsonl", ["deep/c.jsonl", "deep/er/d.jsonl"]),
        ("**/*.jsonl", ["a.jsonl", "b.jsonl", "deep/c.jsonl", "deep/er/d.jsonl"]),
        ("**", ["a.jsonl", "b.jsonl", "deep/c.jsonl", "deep/er/d.jsonl"]),
        (".hidden/*", [".hidden/e.jsonl"]),
        ("deep/.*.jsonl", ["deep/.f.jsonl"]),
        ("deep/../*.jsonl", ["a.jsonl", "b.jsonl"]),
        ("*.csv", []),
        ("missing/*.jsonl", []),
    ],
)
def test_a_pattern_matches_files_as_a_shell_does(
    root: Path, pattern: str, names: list[str]
) -> None:
    assert matching_files(pattern, root, root) == names


def test_names_are_relative_to_the_suites_folder(root: Path) -> None:
    assert matching_files("../*.jsonl", root / "deep", root) == ["../a.jsonl", "../b.jsonl"]


@pytest.mark.parametrize("pattern", ["../neighbour/*", "../*/*", "/etc/*", "*/../../neighbour/*"])
def test_a_pattern_that_leads_outside_is_refused(root: Path, pattern: str) -> None:
    with pytest.raises(NotAllowedError, match="outside"):
        matching_files(pattern, root, root)


@pytest.mark.parametrize("pattern", ["*/*", "**/*", "**", "out/**/*.jsonl", "out/*"])
def test_links_out_of_the_root_are_not_followed(root: Path, pattern: str) -> None:
    (root / "out").symlink_to("../neighbour")

    try:
        names = matching_files(pattern, root, root)
    except EvalError:
        names = []

    assert not [name for name in names if "secret" in name]


def test_a_folder_that_links_to_itself_ends(root: Path) -> None:
    (root / "deep" / "loop").symlink_to("..")

    assert len(matching_files("**/*.jsonl", root, root)) == 4
    assert "deep/loop/a.jsonl" in matching_files("deep/*/*.jsonl", root, root)
