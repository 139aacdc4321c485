"""Configuration is looked for inside the suite's repository, where no other user can write."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from evalcore.pipeline import plan as plan_module
from evalcore.pipeline.plan import git_state
from evalcore.settings import find_upward, repository_root
from evalcore.trust.secrets import nearest_env_file

OTHER_USER = 12345
NAME = "targets.yaml"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite's folder, three below a folder of configuration."""
    folder = tmp_path / "repository" / "evals" / "nightly"
    folder.mkdir(parents=True)
    return folder


def configure(folder: Path, name: str = NAME) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 1\n")
    return path


def test_without_a_repository_only_the_suites_own_folder_counts(suite: Path) -> None:
    configure(suite.parent)

    assert find_upward(suite, (NAME,)).path is None
    assert find_upward(suite, (NAME,)).refused == ()


@pytest.mark.parametrize("mark", ["folder", "file of a worktree"])
def test_files_are_looked_for_up_to_the_repositorys_root(suite: Path, mark: str) -> None:
    root = suite.parent.parent
    if mark == "folder":
        (root / ".git").mkdir()
    else:
        (root / ".git").write_text("gitdir: /elsewhere\n")
    configure(root.parent)
    assert find_upward(suite, (NAME,)).path is None

    expected = configure(root)

    assert find_upward(suite, (NAME,)).path == expected
    assert repository_root(suite) == root


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_folder_that_others_can_write_is_passed_over(suite: Path, mode: int) -> None:
    middle, root = suite.parent, suite.parent.parent
    (root / ".git").mkdir()
    configure(middle)
    expected = configure(root)
    middle.chmod(mode)

    found = find_upward(suite, (NAME,))

    assert found.path == expected
    assert [refused.path for refused in found.refused] == [middle / NAME]
    assert f"{mode:o}" in found.refused[0].reason


@pytest.mark.parametrize("folder", [".agentv", "custom/assertions"])
def test_the_folders_on_the_way_to_a_file_count_too(suite: Path, folder: str) -> None:
    name = f"{folder}/x.yaml"
    configure(suite, name)
    (suite / folder).chmod(0o777)

    assert find_upward(suite, (name,)).path is None


def test_in_a_shared_folder_with_the_sticky_bit_ones_own_files_count(suite: Path) -> None:
    expected = configure(suite)
    suite.chmod(0o1777)

    assert find_upward(suite, (NAME,)).path == expected


@needs_root
@pytest.mark.parametrize("mode", [0o1777, 0o755])
def test_a_file_of_another_user_does_not_count(suite: Path, mode: int) -> None:
    planted = configure(suite)
    suite.chmod(mode)
    os.chown(planted, OTHER_USER, OTHER_USER)

    found = find_upward(suite, (NAME,))

    assert found.path is None
    assert "another user" in found.refused[0].reason


@needs_root
def test_a_group_that_others_may_be_in_can_write(suite: Path) -> None:
    configure(suite)
    os.chown(suite, os.geteuid(), OTHER_USER)
    suite.chmod(0o775)

    assert find_upward(suite, (NAME,)).path is None


@needs_root
def test_who_owns_the_suite_may_configure_it(suite: Path) -> None:
    root = suite.parent.parent
    (root / ".git").mkdir()
    expected = configure(root)
    for path in (suite, suite.parent, root, root / ".git", expected):
        os.chown(path, OTHER_USER, OTHER_USER)

    assert find_upward(suite, (NAME,)).path == expected


@needs_root
def test_a_repository_that_another_user_made_is_none(suite: Path) -> None:
    root = suite.parent.parent
    (root / ".git").mkdir()
    os.chown(root / ".git", OTHER_USER, OTHER_USER)

    assert repository_root(suite) == suite


def test_a_link_out_of_the_repository_does_not_count(suite: Path, tmp_path: Path) -> None:
    outside = configure(tmp_path, "credentials")
    (suite / ".env").symlink_to(outside)

    assert nearest_env_file(suite) is None


def test_a_link_inside_the_repository_counts(suite: Path) -> None:
    (suite.parent / ".git").mkdir()
    configure(suite.parent, "shared.env")
    (suite / ".env").symlink_to("../shared.env")

    assert nearest_env_file(suite) == suite / ".env"


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=n", "-c", "user.email=e")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def dirty(folder: Path) -> bool | None:
    state: bool | None = git_state(folder)["dirty"]
    return state


def test_a_run_knows_its_commit_and_branch(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_STATUS_TIMEOUT_S", 60.0)
    for name in ("GITHUB_SHA", "GITHUB_HEAD_REF", "GITHUB_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI_COMMIT_SHA", "c" * 40)
    monkeypatch.setenv("CI_COMMIT_REF_NAME", "feature")
    assert git_state(suite) == {"commit": "c" * 40, "branch": "feature", "dirty": None}
    root = suite.parents[1]
    git(root, "init", "-q", "-b", "mine")
    assert git_state(suite)["branch"] == "mine"
    configure(suite)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    head = (root / ".git" / "refs" / "heads" / "mine").read_text().strip()
    assert git_state(suite) == {"commit": head, "branch": "mine", "dirty": False}
    git(root, "checkout", "-q", "--detach")
    assert git_state(suite) == {"commit": head, "branch": "feature", "dirty": False}


def test_a_folder_is_dirty_if_its_tracked_files_differ_from_the_commit(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "_STATUS_TIMEOUT_S", 60.0)
    root = suite.parents[1]
    assert dirty(suite) is None
    git(root, "init", "-q")
    tracked, elsewhere = configure(suite), configure(root)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "both")
    configure(suite, "untracked.yaml")
    elsewhere.write_text("x = 2\n")
    assert dirty(suite) is False
    assert dirty(root) is True
    tracked.write_text("x = 2\n")
    assert dirty(suite) is True
    monkeypatch.setenv("PATH", "")
    assert dirty(suite) is None
