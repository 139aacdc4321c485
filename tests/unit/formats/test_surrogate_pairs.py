r"""Escaped surrogate pairs (`"\ud83d\ude00"`) in YAML, as JSON has them."""

from __future__ import annotations

import json

import pytest

from evalcore.errors import LoadError
from evalcore.formats.documents import parse_document

FACE = "\U0001f600"
PAIR = r"\ud83d\ude00"

TEXTS = {
    "JSON": (json.dumps({"a": [f"é{FACE}\n"], FACE: 1}), {"a": [f"é{FACE}\n"], FACE: 1}),
    "capitals": (r'a: "\uD83D\uDE00"', {"a": FACE}),
    "several in a text": (f'a: "x{PAIR}y{PAIR}{PAIR}"', {"a": f"x{FACE}y{FACE}{FACE}"}),
    "after an escaped backslash": (rf'a: "\\{PAIR}"', {"a": rf"\{FACE}"}),
    "after an escaped one and letters": (r'a: "\\ud83d"', {"a": r"\ud83d"}),
    "in single quotes": (f"a: ['{PAIR}', \"{PAIR}\"]", {"a": [PAIR, FACE]}),
    "plain": (f'a: {PAIR}\nb: "{PAIR}"', {"a": PAIR, "b": FACE}),
    "in a block": (f'a: |\n  print("{PAIR}")\nb: "{PAIR}"', {"a": f'print("{PAIR}")\n', "b": FACE}),
    "in a comment": (f'a: 1 # "{PAIR}', {"a": 1}),
    "over two lines": (f'é: "{PAIR}\n  {PAIR}"', {"é": f"{FACE} {FACE}"}),
    "with an anchor": (f'a: &x "{PAIR}"\nb: *x', {"a": FACE, "b": FACE}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), TEXTS.values(), ids=TEXTS.keys())
def test_a_pair_in_double_quotes_is_one_character(text: str, value: object) -> None:
    assert parse_document(text.encode(), "x.yaml").value == value


@pytest.mark.parametrize("half", [r"\ud83d", r"\ude00", r"\\ud83d\ude00"])
def test_a_half_of_a_pair_is_a_mistake_with_its_line(half: str) -> None:
    with pytest.raises(LoadError, match=r"x\.yaml:2: .*no valid escape"):
        parse_document(f'a: "{PAIR}"\nb: "{half}"\n'.encode(), "x.yaml")


def test_lines_stay_behind_pairs() -> None:
    document = parse_document(f'a: "{PAIR}"\nb:\n  c: "{PAIR}"\n'.encode(), "x.yaml")
    assert document.locate(("b", "c")) == 3


def test_lines_of_json_that_yaml_refuses_behind_a_pair_are_found() -> None:
    """YAML takes no key of more than 1024 characters."""
    text = f'{{"{PAIR}": 1,\n "{"k" * 2000}": 2,\n "b": 3}}'
    document = parse_document(text.encode(), "x.yaml")
    assert document.value[FACE] == 1
    assert document.locate(("b",)) == 3
