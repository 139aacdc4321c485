"""Configuration that other users can write is passed over, and the reason is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import evalcore

SUITE = """
execution: {target: echo}
targets: [{name: echo, provider: echo}]
tests: [{id: a, input: "TEXT", assertions: [{type: contains, value: a}]}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that everybody may write to, as Windows' disks look from a Linux beside it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "s.eval.yaml").write_text(SUITE.replace("TEXT", "a"))
    folder.chmod(0o777)
    return folder


def test_ignored_settings_are_a_warning(folder: Path, tmp_path: Path) -> None:
    (folder / "evalcore.toml").write_text("stall_s = 30.0\n")
    ended = evalcore("run", "s.eval.yaml", "--json", cwd=folder, store=tmp_path / "store")

    assert ended.code == 0
    assert ended.report["decision"] == "pass"
    assert "evalcore.toml is not read: other users may write to" in ended.err


@pytest.mark.parametrize("name", ["WORLD", "EVAL_WORLD"])
def test_a_variable_of_an_ignored_file_is_missed_with_the_reason(folder: Path, name: str) -> None:
    (folder / ".env").write_text(f"{name}=a\n")
    suite = folder / "s.eval.yaml"
    suite.write_text(SUITE.replace("TEXT", f"${{{{ {name} }}}}"))
    ended = evalcore("validate", suite)

    assert ended.code == 2
    assert ".env is not read: other users may write to" in ended.err


def test_configuration_may_begin_with_a_mark_of_byte_order(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o755)
    (folder / "evalcore.toml").write_text("stall_s = 30.0\n", "utf-8-sig")
    (folder / ".env").write_text("WORLD=a\n", "utf-8-sig")
    (folder / "s.eval.yaml").write_text(SUITE.replace("TEXT", "${{ WORLD }}"))
    ended = evalcore("run", "s.eval.yaml", cwd=folder, store=tmp_path / "store")

    assert ended.code == 0, ended.err
