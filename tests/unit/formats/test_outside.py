"""What a suite names lies inside its repository: workspaces, hooks, repositories, patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import NotAllowedError
from tests.unit.formats.loading import load_text, places_of, problems_of, write

TESTS = "tests: [{id: a, input: b, fixtures: {output: x}, assertions: [{type: is-json}]}]"
COMMAND = "command: ['true']"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository beside a folder that is none of its business."""
    folder = tmp_path / "repository"
    folder.mkdir()
    write(tmp_path, {"outside/secret.txt": "s"})
    (folder / "link").symlink_to("../outside")
    return folder


@pytest.mark.parametrize("name", ["../outside", "link", "link/below", "/etc", "a/../../outside"])
@pytest.mark.parametrize(
    ("workspace", "place"),
    [
        ("{path: '%s'}", "workspace.path"),
        ("{template: '%s'}", "workspace.template"),
        ("{repos: [{path: r, source: '%s'}]}", "workspace.repos[0].source"),
        (
            "{hooks: {before_each: {" + COMMAND + ", cwd: '%s'}}}",
            "workspace.hooks.before_each.cwd",
        ),
    ],
    ids=["path", "template", "repository", "hook"],
)
def test_a_workspace_outside_the_repository_is_a_mistake(
    folder: Path, workspace: str, place: str, name: str
) -> None:
    problems = problems_of(folder, f"workspace: {workspace % name}\n{TESTS}")

    assert places_of(problems) == [(1, place)]


def test_a_tests_own_workspace_is_checked_too(folder: Path) -> None:
    text = TESTS.replace("input: b", "input: b, workspace: {path: ../outside}")

    assert "tests[0].workspace.path" in [place for _, place in places_of(problems_of(folder, text))]


def test_defaults_beside_a_table_are_no_link_out_of_the_repository(folder: Path) -> None:
    write(folder, {"../outside/defaults.yaml": "threshold: 0.5"})
    (folder / "cases.yaml").symlink_to("../outside/defaults.yaml")
    line = '{"id": "a", "input": "b", "output": "c", "assertions": [{"type": "is-json"}]}'

    with pytest.raises(NotAllowedError, match="outside"):
        load_text(folder, line, "cases.jsonl")


def test_a_workspace_may_lie_above_the_suite_in_its_repository(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "project").mkdir()
    text = f"workspace: {{path: ../project}}\n{TESTS}"

    (case,) = load_text(folder, text, "evals/suite.eval.yaml").cases
    assert case.workspace == {"path": "../project"}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("../outside/*.txt", "outside"), ("link/*.txt", "outside"), ("*/*.txt", "no file matches")],
)
def test_patterns_of_tests_stay_inside(folder: Path, pattern: str, reason: str) -> None:
    (problem,) = problems_of(folder, f"tests: '{pattern}'")

    assert reason in problem.message
    assert "secret" not in problem.message
