"""A text is searched for keys where it holds a hint of one, and every key holds a hint."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evalcore.redaction.redactor import REDACTED, Redactor
from evalcore.redaction.well_known import KEY_HINT, KEYS, SHORTEST_KEY


@given(st.one_of(*(st.from_regex(key) for key in KEYS)))
def test_every_key_is_covered(text: str) -> None:
    assert len(text) >= SHORTEST_KEY
    assert KEY_HINT.search(text)
    assert REDACTED in Redactor().reply(text)
