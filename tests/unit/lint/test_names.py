"""The lint of names and prose (`.ci/names.py`)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import ROOT


@pytest.fixture(scope="module")
def lint() -> Any:
    spec = importlib.util.spec_from_file_location("names", ROOT / ".ci" / "names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def findings(lint: Any, path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(text, "utf-8")
    return [(line, message.partition(":")[0]) for _, line, message in lint.module_findings(path)]


REFUSED = {
    "a variable": ("found = 1", "the name 'found' is vague"),
    "an attribute": ("class A:\n def f(self): self._told = 1", "the name '_told' is vague"),
    "a parameter": ("def f(given_one): pass", "the name 'given_one' is vague"),
    "a keyword parameter": ("def f(*, known): pass", "the name 'known' is vague"),
    "a function": ("def say(): pass", "the name 'say' is vague"),
    "a class": ("class Seen: pass", "the name 'Seen' is vague"),
    "a loop": ("[one for one in ()]", "the name 'one' is vague"),
    "a pattern": ("match 1:\n case {'a': found}: pass", "the name 'found' is vague"),
    "an exception": ("try: pass\nexcept OSError as thing: pass", "the name 'thing' is vague"),
    "a numbered name": ("place_2 = 1", "the name 'place_2' is vague"),
    "a comment": ("# whoever asks", "'whoever'"),
    "a docstring": ('"""Somebody\'s file."""', "'Somebody'"),
    "a message": ("raise ValueError(f'nobody {1}')", "'nobody'"),
}
ACCEPTED = {
    "a noun": "case = 1",
    "a vague word beside a noun": "found_cases = 1",
    "an attribute of another object": "process.found = 1",
    "a keyword argument": "f(given=1)",
    "the type `similar`": "def similar(): pass",
    "a word within a word": "# placement, bystander",
    "a text that is quoted": "A = 'whatever it takes'  # verbatim",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_vague_name_or_a_narrating_word_is_a_finding(
    lint: Any, tmp_path: Path, text: str, message: str
) -> None:
    assert message in [told for _, told in findings(lint, tmp_path / "module.py", text)]


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_anything_else_is_none(lint: Any, tmp_path: Path, text: str) -> None:
    assert findings(lint, tmp_path / "module.py", text) == []


def test_a_module_with_a_vague_name_is_a_finding(lint: Any, tmp_path: Path) -> None:
    assert findings(lint, tmp_path / "places.py", "") == [
        (1, "the module's name 'places' is vague")
    ]


def test_findings_have_the_line_of_their_word(lint: Any, tmp_path: Path) -> None:
    text = 'A = 1\nB = """first\nnobody\n"""\ngot = 2\n'
    assert findings(lint, tmp_path / "module.py", text) == [
        (3, "'nobody'"),
        (5, "the name 'got' is vague"),
    ]


def test_a_public_class_that_two_modules_define_is_a_finding(
    lint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text("class Case: pass\nclass _Row: pass\n", "utf-8")
    modules = [tmp_path / "first.py", tmp_path / "second.py"]
    assert list(lint.repeated_classes(modules)) == [
        (tmp_path / "first.py", 1, "class Case is also in second.py")
    ]
