"""The one redactor: what it knows, in which spellings, and what it leaves alone."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import shlex
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.errors import TargetError
from evalcore.redaction.redactor import PROCESS, REDACTED, RedactedStream, Redactor, cover_exception
from evalcore.redaction.sealing import missing_variables, seal_block, seal_document, unseal

SECRET = "p4ss'w\"ord/+ü=&<x>"


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        repr(SECRET)[1:-1],
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower(),
        html.escape(SECRET),
        shlex.quote(SECRET)[1:-1],
        SECRET.encode().hex(),
    ],
    ids=["plain", "json", "json text", "repr", "percent", "path", "form", "lower", "html", "shell",
         "hex"],
)  # fmt: skip
def test_a_secret_is_covered_in_every_spelling(spelled: str) -> None:
    assert Redactor([SECRET]).text(f"<{spelled}>") == f"<{REDACTED}>"


@given(st.binary(max_size=7), st.binary(max_size=7))
def test_a_secret_is_covered_in_base64_wherever_it_begins(before: bytes, after: bytes) -> None:
    secret = "k3y-of-the-service-42"
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(before + secret.encode() + after).decode()
        covered = Redactor([secret]).text(encoded)
        assert REDACTED in covered
        assert len(covered.replace(REDACTED, "")) < len(encode(before + after)) + 8


@pytest.mark.parametrize(
    ("name", "value", "is_covered"),
    [
        ("OPENAI_API_KEY", "sk-abc123", True),
        ("DB_PASSWORD", "postgres", False),
        ("GITHUB_TOKEN", "0123456789", False),
        ("DATABASE_URL", "postgres://bob:h0rse-1@db/x", True),
        ("EVAL_CANARY", "canary-value-1", True),
        ("EVAL_ENV", "1", False),
        ("EVAL_STAGE", "staging", False),
        ("EVAL_DEBUG", "true", False),
        ("EVAL_MODEL", "gpt-4o-mini-2024-07-18", False),
        ("EVAL_JUDGE", "claude-3-5-sonnet-20241022", False),
        ("EVAL_DATE", "2026-05-18", False),
        ("EVAL_BASE_URL", "http://localhost:8000/v1", False),
        ("EVAL_HOOK", "https://h.example/x?token=t0ken-t0ken", True),
        ("EVAL_GREETING", "Hello and welcome to the shop", False),
        ("EVAL_FOLDER", "/usr/local/share/evals-2", False),
        ("PWD", "/home/bob/project-2026", False),
        ("EDITOR", "some-editor-123456", False),
    ],
)
def test_settings_stay_and_secrets_of_variables_do_not(
    name: str, value: str, *, is_covered: bool
) -> None:
    redactor = Redactor()
    redactor.learn_environment({name: value})
    assert (REDACTED in redactor.text(f"it is {value}.")) is is_covered


@pytest.mark.parametrize(
    "message",
    [
        "GET https://bob:h0rse@db.example/x",
        "GET https://x.example/a?token=abc12345&b=1",
        "line 3: api_key: abc12345",
        '{"password": "abc12345"}',
        "Authorization: Bearer abc12345",
        "X-Auth-Thing: abc12345",
        "Set-Cookie: sid=abc12345",
    ],
)
def test_a_literal_where_a_key_belongs_is_covered_in_messages(message: str) -> None:
    covered = Redactor().message(message)
    assert REDACTED in covered
    assert "abc12345" not in covered
    assert "h0rse" not in covered


@pytest.mark.parametrize(
    "message",
    [
        "give the target `api_key: ${{ OPENAI_API_KEY }}`",
        "may be read only into `api_key`, `headers` and `env`",
        "tokens: 1234567 used; key=short",
        "https://example.com/a?page=2&token=",
    ],
)
def test_messages_about_keys_stay_readable(message: str) -> None:
    assert Redactor().message(message) == message


def test_a_line_of_json_stays_json() -> None:
    redactor = Redactor(['quo"te-1234', "1234567890123456"])
    line = orjson.dumps({"a": ['x quo"te-1234', 1234567890123456], 'quo"te-1234': None}) + b"\n"
    assert orjson.loads(redactor.line(line)) == {
        "a": [f"x {REDACTED}", 1234567890123456],
        REDACTED: None,
    }
    untouched = b'{"a":1}\n'
    assert redactor.line(untouched) is untouched


def test_an_exception_that_leaves_holds_no_secret() -> None:
    PROCESS.learn([SECRET])
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            found = TargetError("python", f"no {SECRET}")
            found.add_note(f"asked with {SECRET}")
            raise found from error
    except TargetError as error:
        cover_exception(error)
        texts = [str(error), *error.__notes__, str(error.__cause__), error.message]
        assert all(SECRET not in text and REDACTED in text for text in texts)


def test_what_is_printed_holds_no_secret() -> None:
    PROCESS.learn([SECRET])
    out = io.BytesIO()
    stream = RedactedStream(out, encoding="utf-8")
    print("a", SECRET, file=stream, flush=True)
    assert out.getvalue().decode() == f"a {REDACTED}\n"


READABLE = {"EVAL_A": "va1ue-of-a-secret", "EVAL_B": "va1ue-of-another"}


PARTS = ["x", *READABLE.values(), "${{ sealed ", "EVAL_A 00 }}", "- }}", "\\", '"']


@given(st.lists(st.sampled_from(PARTS)))
def test_what_is_sealed_is_unsealed_as_it_was(parts: list[str]) -> None:
    redactor = Redactor()
    redactor.learn_environment(READABLE, READABLE)
    block = orjson.dumps({"input": "".join(parts), "tags": parts}) + b"\n"
    sealed = seal_block(block, redactor)
    assert not any(value.encode() in sealed for value in READABLE.values())
    assert orjson.loads(unseal(sealed, redactor)) == orjson.loads(block)


def test_what_is_compared_is_redacted_and_what_is_used_is_sealed() -> None:
    redactor = Redactor()
    redactor.learn_environment(READABLE, READABLE)
    value = READABLE["EVAL_A"]
    head = {"assertions": [["contains", "contains", "c", {"value": value}]]}
    head["assertions"].append(["regex", "regex", "r", {"value": f"^{value}$"}])
    head["assertions"].append(["code-grader", "code-grader", "g", {"command": ["x", value]}])
    case = {"input": value, "expected_output": value, "assertions": [0, 1]}
    block = b"\n".join(map(orjson.dumps, (head, case)))
    first, second = (
        orjson.loads(line) for line in unseal(seal_block(block, redactor), redactor).splitlines()
    )
    assert first["assertions"][0][3] == {"value": REDACTED}
    assert re.search(first["assertions"][1][3]["value"], REDACTED)
    assert first["assertions"][2][3] == {"command": ["x", value]}
    assert (second["input"], second["expected_output"]) == (value, REDACTED)


def test_a_process_without_the_variable_says_which_one_it_lacks() -> None:
    redactor = Redactor()
    redactor.learn_environment(READABLE, READABLE)
    sealed = seal_document(orjson.dumps({"env": READABLE["EVAL_B"]}), redactor)
    assert missing_variables(sealed, Redactor()) == ["EVAL_B"]
    assert unseal(sealed, Redactor()) == sealed


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        'pass"word\\1\nx',
        "Bearer\tabc123def",
        "Bearer\nabc123def",
        "Bearer\u00a0abc123def",
        "sk-abcdef123456",
        "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----",
    ],
    ids=repr,
)
def test_a_json_value_is_covered_as_each_of_its_texts(text: str) -> None:
    redactor = Redactor(['pass"word\\1\nx'])
    value = {"calls": [{"model": text, "tokens": 1}], text: None}
    assert redactor.json_value(value, redactor.reply) == redactor.value(value, redactor.reply)
