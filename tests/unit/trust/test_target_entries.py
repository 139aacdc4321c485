from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from evalcore.trust.target_entries import read_target_entries

LISTED = {
    "below targets": "name: x\ntargets:\n- {name: a}\n- {name: b, more: [x, {y: z}]}\ntests: [",
    "the whole file": "- {name: a}\n- name: b\n",
    "with an alias": "base: &b {name: a, url: 'x: y'}\ntargets: [*b, {name: b, inner: *b}]\n",
}


@pytest.mark.parametrize("text", LISTED.values(), ids=LISTED.keys())
def test_the_entries_are_those_of_the_whole_document(tmp_path: Path, text: str) -> None:
    file = tmp_path / "targets.yaml"
    file.write_text(text)
    whole = yaml.load(text.removesuffix("tests: ["), Loader=yaml.BaseLoader)
    expected = whole["targets"] if isinstance(whole, dict) else whole
    assert read_target_entries(file) == expected


@pytest.mark.parametrize("text", ["", "just text", "{", "targets: x"], ids=repr)
def test_a_file_without_a_list_of_targets_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "targets.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"targets\.yaml"):
        read_target_entries(file)


def test_a_file_without_targets_has_no_such_key(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text("tests: []")
    with pytest.raises(KeyError):
        read_target_entries(file)
