from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.checks import json as strict_json
from evalcore.jsonvalues import same_json
from evalcore.model.assertion import Outcome
from tests.unit.checks.checking import (
    ERROR,
    FAILED,
    PASSED,
    assertion,
    message,
    outcome,
    result,
)

SCHEMA = {
    "type": "object",
    "required": ["name", "score"],
    "properties": {"name": {"type": "string"}, "score": {"type": "number"}},
}
VALID = {
    "object": '{"a": 1}',
    "array with JSON's white space": " \t\r\n[1,2] \n",
    "text": '"str"',
    "literals": "[true, false, null]",
    "beyond a float": "1e999",
    "lone surrogate": r'"\ud800"',
    "duplicate keys": '{"a": 1, "a": 2}',
    "nested": "[" * 500 + "]" * 500,
}
INVALID = {
    "empty": "",
    "plain text": "not json",
    "code fence": '```json\n{"a":1}\n```',
    "trailing comma": '{"a":1,}',
    "two texts": '{"a":1}\n{"a":2}',
    "NaN": "NaN",
    "single quotes": "{'a': 1}",
    "comment": "[1] // one",
    "leading zero": "01",
    "control character": '"\x01"',
    "non-breaking space": "\xa0[1]",
    "byte order mark": "\ufeff[1]",
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_valid_json_passes_with_and_without_a_schema(text: str) -> None:
    assert outcome("is-json", text, schema=None) is PASSED
    assert outcome("is-json", text, schema=True) is PASSED


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_what_is_not_strictly_json_fails(text: str) -> None:
    assert outcome("is-json", text, schema=None) is FAILED
    assert outcome("is-json", text, schema={}) is FAILED


@pytest.mark.parametrize("check", ["is-json", "contains-json"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_beyond_the_parser_is_an_error(check: str, opening: str) -> None:
    ended = result(assertion(check, {"schema": None}), opening * 200_000)
    assert ended.outcome is ERROR
    assert "nested too deeply" in ended.message


@pytest.mark.parametrize(
    ("output", "schema", "expected"),
    [
        ('{"name": "x", "score": 1}', SCHEMA, PASSED),
        ('{"name": "x"}', SCHEMA, FAILED),
        ("1.0", {"type": "integer"}, PASSED),
        ("1", False, FAILED),
        ("1", {}, PASSED),
        ('{"a": 1}', {"$ref": "#/$defs/x", "$defs": {"x": {"required": ["b"]}}}, FAILED),
        ("[1, 2]", {"prefixItems": [{"const": 2}]}, FAILED),
        (
            "[1, 2]",
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 2}]},
            FAILED,
        ),
    ],
)
def test_is_json_applies_the_schema(output: str, schema: Any, expected: Outcome) -> None:
    assert outcome("is-json", output, schema=schema) is expected


BAD_SCHEMAS: dict[str, tuple[Any, str]] = {
    "invalid": ({"type": "strin"}, "invalid JSON Schema: $.type"),
    "a list": ([1], "a JSON Schema is an object"),
    "remote": ({"$ref": "http://127.0.0.1:9/x.json"}, "schemas are not fetched"),
    "a file": ({"$ref": "file:///etc/passwd"}, "schemas are not fetched"),
    "no such definition": ({"$ref": "#/$defs/x"}, "not in it"),
    "invalid pattern": ({"pattern": "("}, "is not a 'regex'"),
    "endless reference": ({"$ref": "#"}, "nested too deeply"),
}


@pytest.mark.parametrize(("schema", "expected"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS)
def test_a_schema_that_cannot_be_applied_is_an_error(schema: Any, expected: str) -> None:
    ended = result(assertion("is-json", {"schema": schema}), '"x"')
    assert ended.outcome is ERROR
    assert expected in ended.message


@pytest.fixture
def schema_server() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that answers everything with the schema `true`, and its requests."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def test_a_schema_elsewhere_is_never_fetched(schema_server: tuple[str, list[str]]) -> None:
    address, requests = schema_server
    assert outcome("is-json", "1", schema={"$ref": f"{address}/x.json"}) is ERROR
    assert requests == []


def test_the_mistake_is_named_with_its_path() -> None:
    text = message("is-json", '{"name": "x", "score": "high"}', schema=SCHEMA)
    assert text == "$.score: 'high' is not of type 'number'"


@pytest.mark.parametrize(
    ("output", "schema", "expected"),
    [
        ('Here: {"a": 1} done', None, PASSED),
        ("see [1] there", None, PASSED),
        ('"{"', None, FAILED),
        ("", None, FAILED),
        ("{not} [json,] but {}", None, PASSED),
        ('```json\n{"name": "x", "score": 1}\n```', SCHEMA, PASSED),
        ('{"name": 1} {"name": "x", "score": 1}', SCHEMA, FAILED),
        ('{bad [1] {"a": 1}', {"type": "object"}, FAILED),
        ("{NaN} [NaN] [2]", {"const": [2]}, PASSED),
    ],
)
def test_contains_json_takes_the_first_object_or_array(
    output: str, schema: Any, expected: Outcome
) -> None:
    assert outcome("contains-json", output, schema=schema) is expected


@pytest.mark.parametrize(
    ("output", "value", "expected"),
    [
        ('{"b": 2, "a": 1}', {"a": 1, "b": 2}, PASSED),
        ("1", 1.0, PASSED),
        ("1.0", 1, PASSED),
        ("true", True, PASSED),
        ("0", False, FAILED),
        ("[1]", [True], FAILED),
        ("null", None, PASSED),
        ('"1"', 1, FAILED),
        ("[1, 2]", [2, 1], FAILED),
        ('{"a": 1}', {"a": 1, "b": 2}, FAILED),
        ("[]", {}, FAILED),
        ("not json", "not json", FAILED),
        ("7" * 5000, 7, FAILED),
    ],
)
def test_equals_json_compares_deeply(output: str, value: Any, expected: Outcome) -> None:
    assert outcome("equals-json", output, value=value) is expected


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON, noise=st.text(st.sampled_from('ab \n,}]:"1'), max_size=8))
def test_what_is_written_as_json_is_found_and_equal(value: Any, noise: str) -> None:
    text = json.dumps(value)
    assert same_json(strict_json.parse(text), value)
    if isinstance(value, dict | list):
        assert same_json(strict_json.first_container(noise + text + noise), value)
