"""`evalcore validate` finds the Python modules that a suite names and that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import evalcore

SUITES = {
    "test-file": """\
execution: {target: mine}
targets: [{name: mine, provider: python, callable: "nowhere_at_all:answer"}]
tests: [{id: a, input: x, assertions: [{type: contains, value: x}]}]
""",
    "script-suite": """\
shared: {tools: [{import_tool: nowhere_at_all.answer, name: answer}]}
suites: {s: {tests: {t: {do: [{call: answer}]}}}}
""",
    "script-suite, tool of a test": """\
suites:
  s:
    tests:
      t: {tools: [{import_tool: nowhere_at_all.answer, name: answer}], do: [{call: answer}]}
""",
    "workflow-harness": """\
workflow: {name: w, entry: a, transitions: [{from: a, to: null}]}
blocks: {a: {type: linear, soul_ref: s}}
souls: {s: {id: s, role: r, system_prompt: p}}
eval:
  cases:
    - id: a
      fixtures: {a: hi}
      expected: {a: [{type: python, callable: "nowhere_at_all:answer"}]}
""",
}


@pytest.mark.parametrize("name", SUITES)
def test_a_missing_module_is_a_mistake_in_every_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(SUITES[name])
    line = next(n for n, text in enumerate(SUITES[name].split("\n"), 1) if "nowhere" in text)
    ended = evalcore("validate", path, "--format", name.partition(",")[0])
    assert ended.code == 2, ended.out
    assert ended.err.startswith(f"{path}:{line}: "), ended.err
    assert "there is no module 'nowhere_at_all'" in ended.err, ended.err
