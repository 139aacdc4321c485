"""Characters that are line breaks to YAML 1.1 alone: refused in YAML, text in JSON."""

from __future__ import annotations

import pytest

from evalcore.errors import LoadError
from evalcore.formats.documents import parse_document


@pytest.mark.parametrize(
    ("separator", "escape"), [("\x85", "x85"), ("\u2028", "u2028"), ("\u2029", "u2029")], ids=ascii
)
def test_a_separator_is_refused_with_its_line_and_its_escape(separator: str, escape: str) -> None:
    with pytest.raises(LoadError, match=rf"x\.yaml:2: .*separator \\{escape}; write it so, in"):
        parse_document(f"a: 1\nb: x{separator}y\n".encode(), "x.yaml")


def test_its_escape_is_the_character() -> None:
    value = parse_document(b'a: "\\u2028\\x85\\u2029"', "x.yaml").value

    assert value == {"a": "\u2028\x85\u2029"}


def test_json_under_another_name_has_its_separators() -> None:
    text = '{"a": "\u2028\\ud800\\udc00",\n "b": "/*"}'

    assert parse_document(text.encode(), "a.yaml").value == {"a": "\u2028\U00010000", "b": "/*"}
