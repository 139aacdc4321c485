"""Tools of the project that read files and start programs, by their names in llm-workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import NotAllowedError
from evalcore.scripts.builtin_tools import find_builtin
from evalcore.scripts.iteration import Iteration, ToolError
from evalcore.scripts.mcp import McpServers
from evalcore.trust.imports import ImportPolicy
from tests.unit.scripts.test_statements import no_model

FS, UNSAFE = "llm_workers.tools.fs", "llm_workers.tools.unsafe"
POEM = "Roses\nViolets\nSugar\nYou\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    suite = tmp_path / "repository" / "evals"
    (suite / "sub").mkdir(parents=True)
    (suite.parent / ".git").mkdir()
    (suite / "poem.txt").write_text(POEM)
    (suite / "sub" / "notes.md").write_text("A rose.\n")
    (suite / ".env").write_text("EVAL_KEY=secret\n")
    (tmp_path / "outside.txt").write_text("outside\n")
    (suite / "link.txt").symlink_to(tmp_path / "outside.txt")
    return suite


def called(reference: str, folder: Path, *, commands: bool = True, **params: Any) -> Any:
    tool = find_builtin(reference, None, {})
    assert tool is not None
    policy = ImportPolicy(commands=commands)
    run = Iteration(policy, no_model, McpServers({}, {}).call, folder=folder)
    return asyncio.run(tool.call(params, {}, run))


@pytest.mark.parametrize(
    ("tool", "params", "result"),
    [
        ("read_file", {"path": "poem.txt", "lines": 2}, "Roses\nViolets\n"),
        ("read_file", {"path": "poem.txt", "lines": "1", "offset": -2}, "Sugar\n"),
        (
            "ReadFileTool",
            {"path": "poem.txt", "lines": 1, "offset": 1, "show_line_numbers": True},
            "2: Violets",
        ),
        ("FilesystemToolkit/glob_files", {"pattern": "**/*.md"}, ["sub/notes.md"]),
        ("glob_files", {"pattern": "*"}, ["poem.txt"]),
        (
            "grep_files",
            {"pattern": "^rose", "files_glob": "*.txt", "case_insensitive": True, "lines_after": 1},
            {
                "total_matches": 1,
                "files_searched": 1,
                "matches": [
                    {
                        "file": "poem.txt",
                        "line_number": 1,
                        "content": "Roses",
                        "context_after": ["Violets"],
                    }
                ],
            },
        ),
        (
            "grep_files",
            {"pattern": "ose", "files_glob": ".", "output_mode": "files_only"},
            {
                "total_matches": 2,
                "files_searched": 2,
                "files": ["poem.txt", "sub/notes.md"],
            },
        ),
        (
            "list_files",
            {},
            "files:\n- link.txt\n- poem.txt\ntotal 2 entries\n\ndirs:\n- sub\ntotal 1 entries",
        ),
        ("file_info", {"path": "nothing"}, {"exists": False}),
    ],
)
def test_files_are_read_below_the_suites_folder(
    folder: Path, tool: str, params: dict[str, Any], result: Any
) -> None:
    assert called(f"{FS}.{tool}", folder, commands=False, **params) == result


@pytest.mark.parametrize("name", ["../../outside.txt", "link.txt", ".env", "/etc/hostname"])
def test_what_lies_outside_the_repository_or_is_hidden_is_not_read(folder: Path, name: str) -> None:
    with pytest.raises(ToolError) as raised:
        called(f"{FS}.read_file", folder, path=name, lines=1)
    assert raised.value.kind == "PermissionError"


def test_files_are_written_and_edited(folder: Path) -> None:
    called(f"{FS}.write_file", folder, path="new.txt", content="a b a")
    called(f"{FS}.write_file", folder, path="new.txt", content=" c", if_exists="append")
    edited = called(
        f"{FS}.edit_file", folder, path="new.txt", old_string="a", new_string="x", replace_all=True
    )

    assert edited == {"replacements": 2}
    assert (folder / "new.txt").read_text() == "x b x c"
    with pytest.raises(ToolError, match="exists already"):
        called(f"{FS}.write_file", folder, path="new.txt", content="")
    with pytest.raises(ToolError, match="stands 2 times"):
        called(f"{FS}.edit_file", folder, path="new.txt", old_string="x", new_string="y")


@pytest.mark.parametrize(
    ("tool", "params", "output"),
    [
        ("bash", {"script": "echo $((1 + 1)); cat poem.txt | head -1"}, "2\nRoses\n"),
        ("run_python_script", {"script": "print(6 * 7)"}, "42\n"),
        ("run_process", {"command": "head", "args": ["-1", "poem.txt"]}, "Roses\n"),
    ],
)
def test_programs_run_in_the_suites_folder(
    folder: Path, tool: str, params: dict[str, Any], output: str
) -> None:
    assert called(f"{UNSAFE}.{tool}", folder, **params) == output


def test_a_program_that_fails_says_why(folder: Path) -> None:
    with pytest.raises(ToolError, match="exit code 3: no such day"):
        called(f"{UNSAFE}.bash", folder, script="echo no such day >&2; exit 3")


@pytest.mark.parametrize(
    ("reference", "params"),
    [
        (f"{UNSAFE}.bash", {"script": "true"}),
        (f"{UNSAFE}.RunProcessTool", {"command": "true"}),
        (f"{FS}.write_file", {"path": "x", "content": ""}),
    ],
)
def test_without_the_right_to_start_programs_nothing_is_started_or_written(
    folder: Path, reference: str, params: dict[str, Any]
) -> None:
    with pytest.raises(NotAllowedError):
        called(reference, folder, commands=False, **params)
