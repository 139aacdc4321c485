from __future__ import annotations

import json
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.report.escape import (
    escape_command,
    escape_command_property,
    escape_data,
    escape_markdown,
    escape_xml,
    escape_xml_attribute,
    fenced,
    shorten,
    visible,
)

ANY_TEXT = st.text(st.characters())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢 😀", "plain ü 漢 😀"),
        ("a | b", r"a \| b"),
        ("*a* _b_ `c` ~d~", r"\*a\* \_b\_ \`c\` \~d\~"),
        ("[a](b)", r"\[a\](b)"),
        ("<img src=x> & more", "&lt;img src=x&gt; &amp; more"),
        ("a\nb\r\n\tc", "a b c"),
        ("@team, see https://x.example and :tada:",
         "&#64;team, see https&#58;//x.example and &#58;tada:"),
        ("www.example.com", "www&#46;example.com"),
        ("$x^2$ #12", r"\$x^2\$ \#12"),
        ("\x1b[31m \u202e", r"\\x1b\[31m \\u202e"),
        ("12:30, a = b: c", "12:30, a = b: c"),
    ],
    ids=["plain", "table", "emphasis", "link", "html", "lines", "mention, address, emoji", "www",
         "formula, number of an issue", "controls", "nothing to escape"],
)  # fmt: skip
def test_foreign_text_is_inert_in_markdown(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown


def test_markdown_is_cut() -> None:
    assert escape_markdown("x" * 20, most=10) == "x" * 9 + "…"


@given(ANY_TEXT)
def test_no_text_leaves_its_code_block(text: str) -> None:
    first, *content, last = fenced(text).split("\n")
    assert first == f"{last}text"
    assert not any(line.strip().startswith(last) for line in content)


@given(ANY_TEXT)
def test_any_text_is_valid_xml(text: str) -> None:
    document = f'<a b="{escape_xml_attribute(text)}">{escape_xml(text)}</a>'
    element = fromstring(document)
    assert (element.get("b"), element.text or "") == (visible(text), visible(text))


@given(ANY_TEXT)
def test_a_workflow_command_is_one_line(text: str) -> None:
    line = f"::error title={escape_command_property(text)}::{escape_command(text)}"
    assert len(line.splitlines()) == 1
    assert not set(":,") & set(escape_command_property(text))


@pytest.mark.parametrize(
    ("text", "message", "property_"),
    [
        ("100%\r\n", "100%25%0D%0A", "100%25%0D%0A"),
        ("a: b, c", "a: b, c", "a%3A b%2C c"),
        ("%0A", "%250A", "%250A"),
        ("\x1b[0m", "\\x1b[0m", "\\x1b[0m"),
    ],
    ids=["percent and line end", "colon and comma", "spelled", "control"],
)
def test_workflow_commands_have_escapes_of_their_own(
    text: str, message: str, property_: str
) -> None:
    assert (escape_command(text), escape_command_property(text)) == (message, property_)


@given(st.text())
def test_data_in_a_page_has_no_character_of_html(text: str) -> None:
    data = escape_data(json.dumps([text], ensure_ascii=False))
    assert json.loads(data) == [text]
    assert not set("<>&\u2028\u2029") & set(data)


def test_a_short_text_is_not_cut() -> None:
    assert [shorten(text, 3) for text in ("abc", "abcd")] == ["abc", "ab…"]
