"""A text is searched for keys where it holds a hint of one, and every key holds a hint."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.redaction.names import KEYS, SHORTEST_KEY, may_hold_key
from evalcore.redaction.redactor import REDACTED, Redactor


@given(st.one_of(*(st.from_regex(key) for key in KEYS)))
def test_every_key_is_covered(text: str) -> None:
    assert len(text) >= SHORTEST_KEY
    assert may_hold_key(text)
    assert REDACTED in Redactor().reply(text)


@given(st.one_of(*(st.from_regex(key) for key in KEYS)))
def test_every_key_is_covered_in_json(text: str) -> None:
    assert may_hold_key(orjson.dumps({"text": text}).decode())
    redactor = Redactor()
    assert REDACTED in redactor.json_value({"text": text}, redactor.reply)["text"]


_BEGINNINGS = (
    *("sk-", "rk-", "pk-", "sk_live_", "rk_live_", "pk_test_", "Bearer ", "bearer\n", "Basic "),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "AKIA", "ASIA"),
    *("AIza", "xoxb-", "eyJ", "-----BEGIN PRIVATE KEY-----"),
)


@pytest.mark.parametrize("beginning", _BEGINNINGS)
def test_each_beginning_of_a_key_is_a_hint(beginning: str) -> None:
    assert may_hold_key(f"the key {beginning}…")
    assert may_hold_key(orjson.dumps([beginning]).decode())
