"""The hint of a gate that has several required parameters."""

from __future__ import annotations

import pytest

from evalcore.gates import registry
from evalcore.gates.gate import Gate
from evalcore.shapes import ParameterError, Share, Weight


class ItemsBelow(
    Gate,
    example="score=0.5,score_items=3",
):
    """Fewer than `score_items` items have a score below `score`."""

    score: Share
    score_items: Weight


@pytest.mark.parametrize(
    ("option", "missing"),
    [
        ("items_below", "'score', 'score_items' are required"),
        ("items_below=0.5", "'score_items' is required"),
        ("items_below:score=0.5", "'score_items' is required"),
        ("items_below:0.5", "write"),
    ],
)
def test_the_hint_of_a_gate_with_two_required_parameters_is_a_form_that_works(
    option: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "GATES", {ItemsBelow.gate: ItemsBelow})
    with pytest.raises(ParameterError) as error:
        registry.parse_gate_option(option)
    assert missing in str(error.value)
    form = "items_below:score=0.5,score_items=3"
    assert form in str(error.value)
    assert registry.option_forms() == form
    params = {"score": 0.5, "score_items": 3.0}
    assert registry.parse_gate_option(form).params == params
