"""Reading YAML and JSON: what values mean, what is refused, which line a path is on."""

from __future__ import annotations

import pytest

from evalcore.errors import LoadError
from evalcore.formats.documents import MAX_DEPTH, Document, as_json, parse_document


def parse(text: str | bytes, *, is_json: bool = False) -> Document:
    data = text.encode() if isinstance(text, str) else text
    return parse_document(data, "file", is_json=is_json)


def refusal(text: str | bytes, *, is_json: bool = False) -> str:
    with pytest.raises(LoadError) as raised:
        parse(text, is_json=is_json)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: 1\nb: .inf\n", "file:2: .inf is not a number JSON can hold", id="inf"),
        pytest.param("a: 1e999\n", "file:1: a number of more than 64 bits", id="overflow"),
        pytest.param("a: !!int x\n", "file:1: not a number", id="int tag"),
        pytest.param("a: !!set {x}\n", "file:1: the tag !!set is not supported", id="set"),
        pytest.param("a: &x [*x]\n", "file:1: the alias *x contains itself", id="cycle"),
        pytest.param("[" * 101 + "]" * 101, "file:1: nested deeper than 100 levels", id="depth"),
        pytest.param("a:\n  b: 1\n  b: 2\n", "file:3: duplicate key 'b'", id="duplicate"),
        pytest.param(b"\xff\xfea\x00", "file: is UTF-16; save it as UTF-8", id="UTF-16"),
        pytest.param(b"\xff\x00\x01", "file: is not a text file", id="binary file"),
        pytest.param(b"a\nb: \xe9\n", "file:2: not UTF-8 (byte 0xe9)", id="latin-1"),
        pytest.param("# nothing\n", "OK", id="comment"),
    ],
)
def test_yaml_that_json_cannot_hold_is_refused(text: str | bytes, message: str) -> None:
    if message == "OK":
        assert parse(text).value is None
    else:
        assert refusal(text).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('{"a": 1,\n "a": 2}', "file:2: not valid JSON: duplicate key 'a'", id="twice"),
        pytest.param('{"a":\n NaN}', "file:2: not valid JSON: no JSON value", id="NaN"),
        pytest.param('{"a": [1,\n 1e999]}', "file:2: a number of more than 64 bits", id="overflow"),
        pytest.param('{"a": 18446744073709551616}', "file:1: a number of more", id="65 bits"),
        pytest.param("[" * 300 + "]" * 300, "file:1: not valid JSON: nested too deeply", id="deep"),
        pytest.param("", "file: is empty", id="empty"),
    ],
)
def test_json_is_strict(text: str, message: str) -> None:
    assert refusal(text, is_json=True).startswith(message)


@pytest.mark.parametrize(
    ("written", "character"),
    [("\\ud83d\\ude00", "\U0001f600"), ("\\ud83d", "\ufffd"), ("\x7f", "\x7f")],
    ids=["pair of escapes", "half of a pair", "delete"],
)
def test_json_under_a_name_of_yaml_is_read_as_json(written: str, character: str) -> None:
    found = parse(f'{{\n\t"a": 1,\n\t"b": "{written}"\n}}')

    assert found.value == {"a": 1, "b": character}
    assert found.locate(("b",)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a: "\\ud83d"', "file:1: not valid YAML: no valid escape"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper than"),
    ],
    ids=["no document of JSON", "too deep"],
)
def test_what_yaml_refuses_of_other_texts_is_refused(text: str, message: str) -> None:
    assert message in refusal(text)


def test_a_byte_order_mark_is_dropped() -> None:
    assert parse(b"\xef\xbb\xbfa: 1\n").value == {"a": 1}
    assert parse(b'\xef\xbb\xbf{"a": 1}', is_json=True).value == {"a": 1}


YAML = """\
name: x
tests:
  - id: one
    input: |
      two
      lines
    tags: [a,
      b]

  - {id: two, deep: {er: [1, {x: 2}]}}
"""
JSON = """{
\t"name": "\\ud83d\\ude00 \\" { [ ,",
\t"tests": [
\t\t{
\t\t\t"id": "one",
\t\t\t"tags": ["a",
\t\t\t\t"b"]
\t\t},
\t\t{"id": "two", "deep": {"er": [1,
\t\t\t{"x": 2}]}}
\t]
}"""


@pytest.mark.parametrize(
    ("loc", "yaml_line", "json_line"),
    [
        ((), 1, 1),
        (("name",), 1, 2),
        (("tests",), 2, 3),
        (("tests", 0), 3, 4),
        (("tests", 0, "id"), 3, 5),
        (("tests", 0, "tags"), 7, 6),
        (("tests", 0, "tags", 1), 8, 7),
        (("tests", 0, "missing"), 3, 4),
        (("tests", 1), 10, 9),
        (("tests", 1, "deep", "er", 1, "x"), 10, 10),
        (("tests", 7), 2, 3),
        (("missing", "deeper"), 1, 1),
    ],
    ids=str,
)
def test_a_path_has_the_line_of_its_key_or_of_what_exists_of_it(
    loc: tuple[str | int, ...], yaml_line: int, json_line: int
) -> None:
    assert parse(YAML).locate(loc) == yaml_line
    assert parse(JSON, is_json=True).locate(loc) == json_line


def test_keys_that_are_no_text_become_text_as_json_writes_them() -> None:
    value = parse("{7: a, true: b, null: c, 1.5: {2: d}}").value

    assert as_json(value) == {"7": "a", "true": "b", "null": "c", "1.5": {"2": "d"}}
