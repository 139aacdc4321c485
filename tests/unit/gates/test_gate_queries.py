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
