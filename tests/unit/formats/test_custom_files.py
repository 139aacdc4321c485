"""Souls of workflow files that stand in files of their own, below `custom/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.formats.loading import cases_of, load_text, problems_of, write

DIGEST = """\
version: "1.0"
id: digest
kind: workflow
tools: [http, payload_tool, webhook]
blocks:
  write: {type: linear, soul_ref: writer, stall_thresholds: {phase: 3}}
  send: {type: linear, soul_ref: sender, depends: write}
workflow: {name: digest, entry: write}
eval: {cases: [{id: a, %sexpected: {send: [{type: contains, value: x}]}}]}
"""
WRITER = """\
id: writer
kind: soul
name: Writer
role: Writer
system_prompt: You write.
provider: openai
model_name: gpt-4.1-mini
tools: null
assertions: null
max_tokens: null
avatar_color: info
modified_at: null
"""
SENDER = """\
id: sender
role: Sender
system_prompt: You send.
provider: openai
model_name: gpt-4.1-mini
tools: [http, payload_tool, webhook]
required_tool_calls: [payload, webhook]
"""
FILES = {
    "custom/souls/writer.yaml": WRITER,
    "custom/souls/sender.yaml": SENDER,
}
NAME = "custom/workflows/digest.yaml"


def repository(folder: Path, **changes: str) -> Path:
    (folder / ".git").mkdir()
    changed = {f"custom/{name.replace('__', '/')}.yaml": text for name, text in changes.items()}
    write(folder, {name: text for name, text in (FILES | changed).items() if text})
    return folder


def loaded(folder: Path, text: str = DIGEST % "") -> tuple[dict[str, Any], tuple[str, ...]]:
    suite = load_text(folder, text, NAME)
    return dict(suite.definition.targets["workflow"].options), suite.warnings


def test_souls_are_files_beside_the_workflow(tmp_path: Path) -> None:
    options, warnings = loaded(repository(tmp_path))
    definition = options["definition"]

    assert definition["souls"]["sender"]["system_prompt"] == "You send."
    assert definition["souls"]["writer"]["model_name"] == "gpt-4.1-mini"
    assert warnings == ()


def test_files_beside_the_folder_of_workflows_need_no_repository(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    definition = loaded(tmp_path)[0]["definition"]
    assert definition["souls"]["sender"]["system_prompt"] == "You send."


def test_a_soul_of_the_workflow_file_wins(tmp_path: Path) -> None:
    souls = "souls: {writer: {system_prompt: Mine., provider: openai, model: m}}\n"
    options, _ = loaded(repository(tmp_path), souls + DIGEST % "")

    assert options["definition"]["souls"]["writer"]["system_prompt"] == "Mine."


def test_sub_workflows_have_souls_of_their_own(tmp_path: Path) -> None:
    outer = """\
        blocks: {call: {type: workflow, workflow_ref: digest}}
        workflow: {name: outer, entry: call}
        eval: {cases: [{id: a, expected: {call: [{type: contains, value: x}]}}]}
        """
    write(repository(tmp_path), {NAME: DIGEST % ""})
    options = load_text(tmp_path, outer).definition.targets["workflow"].options

    (inner,) = options["workflows"].values()
    assert sorted(inner["souls"]) == ["sender", "writer"]


def test_files_are_not_read_for_a_suite_of_fixtures(tmp_path: Path) -> None:
    repository(tmp_path, souls__writer="tools: 5")

    assert "a" in cases_of(tmp_path, DIGEST % "fixtures: {send: x}, ", NAME)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"souls__writer": ""},
            "unknown soul 'writer'.",
            id="no soul",
        ),
        pytest.param(
            {"souls__writer": "system_promt: x"},
            "custom/souls/writer.yaml:1: system_promt: unknown key 'system_promt'.",
            id="a wrong soul",
        ),
    ],
)
def test_mistakes_in_the_files_are_told_with_their_place(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    problems = problems_of(repository(tmp_path, **changes), DIGEST % "", NAME)

    assert message in "\n".join(map(str, problems))


PROVIDED = """\
version: "1.0"
souls: {writer: {system_prompt: s, provider: %s, model_name: m}}
blocks: {write: {type: linear, soul_ref: writer}}
workflow: {name: w, entry: write}
eval: {cases: [{id: a, expected: {write: [{type: contains, value: x}]}}]}
"""


def provided(folder: Path, name: str, manifest: str) -> dict[str, Any]:
    write(folder, {f"custom/providers/{name}.yaml": manifest, ".env": "GROQ_API_KEY=k\n"})
    definition = load_text(folder, PROVIDED % name, "flow.yaml").definition
    (target,) = definition.targets.values()
    entry: dict[str, Any] = target.options["providers"][name]
    return entry


def test_an_entry_of_targets_goes_before_a_providers_file(tmp_path: Path) -> None:
    write(tmp_path, {"targets.yaml": "targets: [{name: p, provider: echo}]"})

    assert provided(tmp_path, "p", "{id: p, type: anthropic}")["kind"] == "echo"
