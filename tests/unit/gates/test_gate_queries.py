"""A gate may compute what the summary does not hold, by a query of its own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from evalcore.declared.parameter_types import Amount, Share
from evalcore.gates import registry
from evalcore.gates.gate import Gate
from evalcore.model.gate import GateResult
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary
from tests.support.comparison_results import decide, result


@dataclass(frozen=True)
class MaxItemsOver(
    Gate, example="0.5", query="SELECT count(*) FROM items WHERE counted_score > $score"
):
    """At most `items` work items have a score above this."""

    score: Share
    items: Amount = 0

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        ((count,),) = self.rows(summary)
        return self.passes_if(count <= self.items, f"{count} items", {})


@pytest.mark.parametrize(("most", "outcome"), [(1, "fail"), (2, "pass")])
def test_a_gate_decides_over_the_rows_of_its_query(
    most: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "GATES", {MaxItemsOver.gate: MaxItemsOver})
    scores = [result(f"c{index}", overall=score) for index, score in enumerate((0.4, 0.6, 0.9))]
    gate, _ = decide({"gate": "maxItemsOver", "score": 0.5, "items": most}, base=scores)
    assert (gate.outcome, gate.message) == (outcome, "2 items")


@dataclass(frozen=True)
class ItemsBelow(
    Gate,
    example="score=0.5,score_items=3",
    query="SELECT count(*) FROM items WHERE counted_score < $score_items",
):
    """Fewer than `score_items` items have a score below `score`."""

    score: Share
    score_items: Amount

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        ((count,),) = self.rows(summary)
        return self.passes_if(count < self.score_items, f"{count} items", {})


def test_a_parameter_whose_name_begins_another_one_is_not_handed_to_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "GATES", {ItemsBelow.gate: ItemsBelow})
    scores = [result("c", overall=0.4)]
    gate, _ = decide({"gate": "items_below", "score": 0.5, "score_items": 2}, base=scores)
    assert (gate.outcome, gate.message) == ("pass", "1 items")


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
    with pytest.raises(registry.GateSyntaxError) as error:
        registry.parse_gate_option(option)
    assert missing in str(error.value)
    form = "items_below:score=0.5,score_items=3"
    assert form in str(error.value)
    assert registry.option_forms() == form
    params = {"score": 0.5, "score_items": 3.0}
    assert registry.parse_gate_option(form).params == params
