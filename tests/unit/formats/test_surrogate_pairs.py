r"""Escaped surrogate pairs (`"\ud83d\ude00"`): characters in JSON, a mistake in other YAML."""

from __future__ import annotations

import pytest

from evalcore.errors import LoadError
from evalcore.formats.documents import parse_document

FACE = "\U0001f600"
PAIR = r"\ud83d\ude00"


def test_a_pair_in_yaml_is_a_mistake_with_its_line() -> None:
    with pytest.raises(LoadError, match=r"x\.yaml:2: .*no valid escape"):
        parse_document(f'a: 1\nb: "{PAIR}"\n'.encode(), "x.yaml")


def test_lines_of_json_that_yaml_refuses_behind_a_pair_are_found() -> None:
    """YAML takes no key of more than 1024 characters."""
    text = f'{{"{PAIR}": 1,\n "{"k" * 2000}": 2,\n "b": 3}}'
    document = parse_document(text.encode(), "x.yaml")
    assert document.value[FACE] == 1
    assert document.locate(("b",)) == 3
