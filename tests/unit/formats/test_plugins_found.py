"""Plug-ins of workflow files: where a manifest is looked for, and what it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.formats.loading import SUITE, cases_of, problems_of, write

MANIFEST = "{version: 1, id: tone, kind: assertion, returns: bool, source: tone.py}"
TEXT = """\
eval:
  cases:
    - id: a
      fixtures: {x: y}
      expected: {x: [{type: "not-custom:tone", config: {kind: true}}]}
"""


@pytest.mark.parametrize("folder", ["", "deep/er/"])
def test_a_manifest_is_looked_for_upward(tmp_path: Path, folder: str) -> None:
    write(tmp_path, {"custom/assertions/tone.yaml": MANIFEST, "custom/assertions/tone.py": ""})
    (tmp_path / ".git").mkdir()
    found = cases_of(tmp_path, TEXT, f"{folder}{SUITE}")["a"].assertions[0]

    assert (found.check, found.negate) == ("custom", True)
    assert found.params == {
        "id": "tone",
        "source": str(tmp_path / "custom/assertions/tone.py"),
        "returns": "bool",
        "params": None,
        "config": {"kind": True},
    }


def test_a_changed_manifest_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, {"custom/assertions/tone.yaml": MANIFEST, "custom/assertions/tone.py": ""})
    cases_of(tmp_path, TEXT)
    write(tmp_path, {"custom/assertions/tone.yaml": MANIFEST.replace("bool", "grading_result")})

    assert cases_of(tmp_path, TEXT)["a"].assertions[0].params["returns"] == "grading_result"


@pytest.mark.parametrize("source", ["../tone.py", "/etc/hostname", "missing.py", "."])
def test_a_source_lies_beside_its_manifest(tmp_path: Path, source: str) -> None:
    manifest = MANIFEST.replace("tone.py", source)
    write(tmp_path, {"custom/assertions/tone.yaml": manifest, "custom/tone.py": ""})
    (problem,) = problems_of(tmp_path, TEXT)

    assert problem.path == "eval.cases[0].expected.x[0].type"
    assert f"no file '{source}' beside it" in problem.message


NO_SCHEMA = {
    "an unknown type": ("{type: numbr}", "params: invalid JSON Schema: $.type"),
    "a wrong pattern": ("{properties: {budget: 3}}", "params: invalid JSON Schema"),
}


@pytest.mark.parametrize(("params", "expected"), NO_SCHEMA.values(), ids=NO_SCHEMA)
def test_params_are_a_json_schema(tmp_path: Path, params: str, expected: str) -> None:
    manifest = MANIFEST.replace("returns", f"params: {params}, returns")
    write(tmp_path, {"custom/assertions/tone.yaml": manifest, "custom/assertions/tone.py": ""})
    (problem,) = problems_of(tmp_path, TEXT)

    assert expected in problem.message
