"""Coding agents of AgentV are targets of an unknown kind: only what uses one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import evalcore

SUITE = """\
targets: [{name: default, provider: copilot-cli}, {name: stand-in, provider: echo}]
tests: [{id: a, input: x, assertions: [{type: contains, value: x}]}]
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [(["validate"], 2), (["run"], 2), (["run", "--target", "stand-in"], 0)],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_only_what_uses_an_agent_refuses_it(words: list[str], code: int, tmp_path: Path) -> None:
    path = tmp_path / "agents.eval.yaml"
    path.write_text(SUITE)
    ended = evalcore(*words, path, cwd=tmp_path)

    assert ended.code == code, ended.out + ended.err
    named = "unknown target kind 'copilot-cli'" in ended.out + ended.err
    assert named is ("--target" not in words)
