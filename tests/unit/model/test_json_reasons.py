"""Why a text is not taken as JSON."""

from __future__ import annotations

import orjson
import pytest

from evalcore.jsonvalues import json_reason


@pytest.mark.parametrize("text", [r'["\ud800"]', r'["\udc00 x"]', r'["\ud83d\ud83d"]'])
def test_half_of_a_surrogate_pair_is_named_as_what_it_is(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError) as refusal:
        orjson.loads(text)
    assert json_reason(refusal.value).startswith("half of a surrogate pair")
    assert "line 1 column" in json_reason(refusal.value)


def test_other_reasons_stay_as_they_are() -> None:
    with pytest.raises(orjson.JSONDecodeError) as refusal:
        orjson.loads("{")
    assert json_reason(refusal.value) == str(refusal.value)
