from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.trust.text import last_words, redact, sanitize_terminal, tail_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢 😀", "plain ü 漢 😀"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\x07\x00\x7f", "a\\x0db\\x07\\x00\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("\ud800", "\\ud800"),
        ("a\u2028b", "a\\u2028b"),
        ("x\n ::error file=a::b", "x\n \\x3a:error file=a::b"),
        ("x ##[error]y ##vso[task]", "x \\x23#[error]y \\x23#vso[task]"),
        ("::1 and a::b::c, ## Title [1]", "::1 and a::b::c, ## Title [1]"),
    ],
    ids=[
        "plain",
        "tab and newline",
        "escape",
        "C0",
        "C1",
        "bidi",
        "surrogate",
        "line separator",
        "workflow command",
        "older commands",
        "no command",
    ],
)
def test_controls_are_shown_instead_of_obeyed(text: str, shown: str) -> None:
    assert sanitize_terminal(text) == shown


@given(st.text(st.characters()))
def test_sanitized_text_can_be_printed_anywhere(text: str) -> None:
    assert b"\x1b" not in sanitize_terminal(text).encode()


@pytest.mark.parametrize(
    ("secrets", "shown"),
    [
        (["tok-12"], "key=[redacted]34 tok"),
        (["tok-12", "tok-1234"], "key=[redacted] tok"),
        (["tok", "", "1"], "key=tok-1234 tok"),
        ([], "key=tok-1234 tok"),
    ],
    ids=["one", "longest first", "too short", "none"],
)
def test_secrets_are_replaced(secrets: list[str], shown: str) -> None:
    assert redact("key=tok-1234 tok", secrets) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\n  two\r\n", "one two"),
        ("", ""),
        ("x" * 10, "x" * 10),
        ("x" * 10 + "y", "…" + "x" * 8 + "y"),
        ("a" + " " * 100 + "b", "…b"),
    ],
    ids=["lines", "empty", "exactly", "cut", "white space"],
)
def test_tail_is_one_line_of_bounded_length(text: str, shown: str) -> None:
    assert tail_line(text, limit=10) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("boom\n", "boom", id="one line"),
        pytest.param(
            "a.py, line 3\n  ValueError: x\n", "ValueError: x (before it: a.py, line 3)", id="two"
        ),
        pytest.param("x" * 200 + "\nlast", "last (before it: …" + "x" * 81 + ")", id="cut"),
        pytest.param("a\n" + "y" * 200, "…" + "y" * 99, id="long last line"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_the_last_line_comes_first(text: str, shown: str) -> None:
    assert last_words(text, limit=100) == shown
