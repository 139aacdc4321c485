from __future__ import annotations

import json
import re
from collections.abc import Callable
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from evalcore.report.document import on_one_line
from evalcore.report.escape import (
    escape_command,
    escape_command_property,
    escape_data,
    escape_markdown,
    escape_markdown_html,
    escape_xml,
    escape_xml_attribute,
    fenced,
    inert_message,
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
         r"&#64;team, see https\://x.example and \:tada:"),
        ("www.example.com", r"www\.example.com"),
        ("$x^2$ #12", r"\$x^2\$ \#12"),
        ("\x1b[31m \u202e", r"\\x1b\[31m \\u202e"),
        ("12:30, a = b: c", "12:30, a = b: c"),
    ],
    ids=["plain", "table", "emphasis", "link", "html", "lines", "mention, address, emoji", "www",
         "formula, number of an issue", "controls", "nothing to escape"],
)  # fmt: skip
def test_foreign_text_is_inert_in_markdown(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown


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


HOSTILE = [
    "x\n\n![a](http://evil.example/p.png)",
    "x</summary></details>\n\n# heading",
    "<img src=http://evil.example/x>",
    "[a](http://evil.example) [b][c] [^1]",
    "<http://evil.example> http://evil.example www.evil.example",
    "``` fence",
    "| a | b |",
    "**bold** _it_ ~~gone~~",
    "\\\\[a](http://evil.example)",
    "&#x5b;a](b)",
]


def _elements(text: str) -> set[str]:
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    every = [*tokens, *(inner for token in tokens for inner in token.children or ())]
    return {token.type for token in every}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    ("escape", "template"),
    [
        (escape_markdown, "{}"),
        (escape_markdown, "a {} b"),
        (escape_markdown_html, "<details><summary>{}</summary>\n\n</details>"),
        (inert_message, "{}"),
    ],
    ids=["a line", "in a line", "an element", "a message"],
)
def test_no_data_makes_an_element_of_markdown(
    escape: Callable[[str], str], template: str, text: str
) -> None:
    harmless = _elements(template.format("a\n\nb" if escape is inert_message else "a"))
    assert _elements(template.format(escape(text))) <= harmless | {"text_special", "softbreak"}


@pytest.mark.parametrize(
    "text",
    ["pass_rate 0.80 < 0.90", "a.yaml:1: tests[0].input: is required", "no file matches *.yaml",
     "~/evals/a.yaml"],
)  # fmt: skip
def test_an_ordinary_message_stays_as_it_is(text: str) -> None:
    assert inert_message(text) == text


@example(["|", "\n", ":", "-"])
@example(["|", "\n", "-", ":"])
@example(["a", "|", "\n", ":", "-", "-", ":"])
@given(st.lists(st.sampled_from([*"[]()*~_!<>:|#-\\`", "a", " ", "\n", "http://x.y", "www.x.y"])))
def test_no_message_of_signs_makes_an_element(signs: list[str]) -> None:
    allowed = {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "softbreak"}
    shown = inert_message("".join(signs).strip())
    assert _elements(shown) <= allowed | {"hardbreak", "code_block"}


@pytest.mark.parametrize(
    "line",
    ["::error::x", "  ::Error file=a::x", "::SET-OUTPUT name=a::b", "::Add-Mask::x",
     "a ##[error]x", "##vso[task.setvariable]x", "##TeamCity[x]"],
)  # fmt: skip
def test_no_report_that_is_printed_holds_a_command_of_a_log(line: str) -> None:
    text = f"before\n{line}"
    printed = [fenced(text), escape_xml(text), escape_xml_attribute(text), escape_command(text)]
    printed += [escape_data(json.dumps(text)), on_one_line(json.dumps(text))]
    for shown in printed:
        assert not re.search(r"^\s*::[^\n]*::|##\s*\w*\[", shown, re.MULTILINE)
