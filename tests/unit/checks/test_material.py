from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.base import CheckContext, Subject
from evalcore.checks.judged import material_of
from evalcore.judging.panel import DEFAULT_PROMPT, question_of
from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.suite import Case
from evalcore.trust.imports import ImportPolicy

CHANGES = [{"path": "a.txt", "change": "added", "diff": "--- /dev/null\n+++ b/a.txt\n+xyzzy\n"}]
CALLS = [{"role": "assistant", "tool_calls": [{"tool": "search", "input": {"q": "plugh"}}]}]


def subject(folder: Path, case: Case, **details: Any) -> Subject:
    context = CheckContext(folder, ImportPolicy())
    return Subject("Yes.", UNMEASURED, Evidence("Yes.", details=details), case, context)


def attaching(*names: str) -> list[Any]:
    files = [{"type": "file", "value": name} for name in names]
    return [{"role": "user", "content": [*files, {"type": "text", "value": "Which word?"}]}]


def test_a_judge_sees_the_text_of_attached_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("xyzzy")
    (tmp_path / "long.txt").write_text("x" * 70_000)
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    expected = attaching("notes.txt")
    case = Case("a", attaching("notes.txt", "long.txt", "data.bin"), expected_output=expected)
    material = material_of(subject(tmp_path, case), None)
    assert material["input"] == (
        '<file name="notes.txt">\nxyzzy\n</file>\n'
        "[file: long.txt, 70,000 bytes: too large to be shown here]\n"
        "[file: data.bin, 3 bytes: no text]\n"
        "Which word?"
    )
    assert "xyzzy" in material["expected_output"]


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (None, True),
        (f"{DEFAULT_PROMPT}\n\nCriteria:\nIs kind", True),
        ("Judge {{output}} for {{metadata}}", True),
        ("Judge {{output}} for {{metadata.tier}}", False),
        ("Judge {{output}}", False),
    ],
)
def test_metadata_reach_built_in_prompts_and_those_that_name_them(
    tmp_path: Path, prompt: str | None, shown: bool
) -> None:
    case = Case("a", "hi", metadata={"tier": "gold", "seats": 3})
    question = question_of(prompt, material_of(subject(tmp_path, case), prompt))
    assert ('"seats": 3' in question.user) is shown


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (None, (True, True)),
        (f"{DEFAULT_PROMPT}\n\nCriteria:\nIs kind", (True, True)),
        ("Judge {{output}} by {{file_changes}}", (True, False)),
        ("Judge {{output}} by {{tool_calls}}", (False, True)),
        ("Judge {{output}}", (False, False)),
    ],
)
def test_changes_of_files_and_tool_calls_reach_built_in_prompts_and_those_that_name_them(
    tmp_path: Path, prompt: str | None, shown: tuple[bool, bool]
) -> None:
    item = subject(tmp_path, Case("a", "hi"), file_changes=CHANGES, messages=CALLS)
    user = question_of(prompt, material_of(item, prompt)).user
    assert ("diff --git a/a.txt b/a.txt" in user and "+xyzzy" in user, "plugh" in user) == shown


def test_what_no_prompt_asked_for_is_cut_where_it_is_long(tmp_path: Path) -> None:
    changes = [{"path": "a", "change": "added", "diff": "x" * 70_000 + "end"}]
    item = subject(tmp_path, Case("a", "hi"), file_changes=changes)
    unasked = material_of(item, None)["file_changes"]
    assert unasked.endswith("\n[cut: the first 65536 of 70044 characters]")
    assert "end" not in unasked
    assert material_of(item, "{{file_changes}}")["file_changes"].endswith("xend\n")
