"""YAML that this project writes: characters stand as they are, also those beyond U+FFFF."""

from __future__ import annotations

import pytest

from evalcore.formats.documents import parse_document, yaml_text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("To Oslo \U0001f1f3\U0001f1f4", id="emoji"),
        pytest.param("first\nsecond \U0001f44b\n", id="emoji in lines"),
        pytest.param("caf\u00e9 \u6771\u4eac", id="below"),
        pytest.param("C:\\Users", id="a backslash and U"),
    ],
)
def test_a_text_stands_as_it_is_and_is_read_again(text: str) -> None:
    written = yaml_text({"id": "no", "input": text})
    assert all(line in written for line in text.splitlines())
    assert parse_document(written.encode(), "x.yaml").value == {"id": "no", "input": text}
