from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import NotAllowedError, UsageError
from evalcore.trust.files import resolve_inside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "evals" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "top.txt").write_text("top")
    (root / "both.txt").write_text("far")
    (root / "evals" / "both.txt").write_text("near")
    return root


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("top.txt", "top.txt"),
        ("both.txt", "evals/both.txt"),
        ("../top.txt", "top.txt"),
        ("../../top.txt", "top.txt"),
        ("evals/both.txt", "evals/both.txt"),
    ],
    ids=["upward", "nearest first", "parent", "parent's parent", "from the root"],
)
def test_file_is_found_from_the_folder_upward(root: Path, name: str, found: str) -> None:
    assert resolve_inside(root, root / "evals" / "deep", name) == root / found


def test_absolute_name_inside_the_root_is_taken(root: Path) -> None:
    name = str(root / "top.txt")
    assert resolve_inside(root, root / "evals", name) == root / "top.txt"


@pytest.mark.parametrize(
    "name", ["../secret.txt", "/etc/passwd", "../root/../secret.txt", "../nowhere.txt"]
)
def test_name_that_leads_outside_is_refused(root: Path, name: str) -> None:
    with pytest.raises(NotAllowedError, match="outside"):
        resolve_inside(root, root, name)


def test_symbolic_link_that_leads_outside_is_refused(root: Path) -> None:
    (root / "evals" / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "evals" / "up").symlink_to(root.parent)
    for name in ("link.txt", "up/secret.txt"):
        with pytest.raises(NotAllowedError, match="symbolic link"):
            resolve_inside(root, root / "evals", name)


def test_symbolic_link_inside_the_root_is_followed(root: Path) -> None:
    (root / "evals" / "link.txt").symlink_to(root / "top.txt")
    assert resolve_inside(root, root / "evals", "link.txt") == root / "top.txt"


def test_missing_file_lists_where_it_was_looked_for(root: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_inside(root, root / "evals", "gone.txt")
    for place in (root / "evals" / "gone.txt", root / "gone.txt"):
        assert str(place) in str(caught.value)


@pytest.mark.parametrize("name", ["", "evals", "a\0b", "x" * 5000], ids=repr)
def test_name_that_is_no_file_is_a_mistake(root: Path, name: str) -> None:
    with pytest.raises(UsageError):
        resolve_inside(root, root, name)
