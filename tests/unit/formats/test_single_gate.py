"""Results of `evalcore decide`: what a result may say, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.errors import LoadError
from evalcore.formats.single_gate import read_question


def question(**result: Any) -> dict[str, Any]:
    cases = [{"caseId": "c", "passed": True, **result}]
    return {"gate": "errors", "variants": [{"variantId": "a", "cases": cases}]}


def mistakes(**result: Any) -> list[tuple[str, str]]:
    with pytest.raises(LoadError) as caught:
        read_question(question(**result))
    return [(problem.path, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize("status", ["errored", "Error", "timeout", "pending", "ok", ""])
def test_a_status_that_no_result_has_is_a_mistake(status: str) -> None:
    ((path, message),) = mistakes(status=status)

    assert path == "variants[0].cases[0].status"
    assert message.startswith("unknown value")


@pytest.mark.parametrize(
    ("result", "tokens"),
    [
        ({"tokens": 5}, (5, 0)),
        ({"inputTokens": 2}, (2, None)),
        ({"tokens": 5, "inputTokens": 2}, (2, 3)),
        ({"tokens": 5, "outputTokens": 2}, (3, 2)),
        ({"tokens": 5, "inputTokens": 2, "outputTokens": 3}, (2, 3)),
        ({"tokens": None, "inputTokens": 2, "outputTokens": 3}, (2, 3)),
    ],
)
def test_tokens_are_the_sum_of_both(result: dict[str, Any], tokens: tuple[int, int]) -> None:
    (row,) = read_question(question(**result)).results.rows

    assert (row["input_tokens"], row["output_tokens"]) == tokens


@pytest.mark.parametrize(
    "result",
    [
        {"tokens": 5, "inputTokens": 6},
        {"tokens": 5, "outputTokens": 6},
        {"tokens": 5, "inputTokens": 2, "outputTokens": 2},
    ],
)
def test_tokens_that_are_no_sum_are_a_mistake(result: dict[str, Any]) -> None:
    ((path, message),) = mistakes(**result)

    assert path == "variants[0].cases[0].tokens"
    assert "is not the sum" in message


@pytest.mark.parametrize("field", ["tokens", "inputTokens", "durationMs", "costUsd"])
def test_a_measure_is_what_a_fixture_may_have(field: str) -> None:
    ((_, message),) = mistakes(**{field: 2**64})

    assert "at most" in message
    assert read_question(question(**{field: 2**63 - 1})).results.rows
