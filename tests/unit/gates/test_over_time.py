"""Gates that look back on earlier runs: what they decide over given histories."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from evalcore.formats.single_gate import read_question
from evalcore.gates.registry import parse_gate_option
from evalcore.model.run import GateResult
from evalcore.pipeline.gates import decide_question


def _refuse(reference: object) -> Any:
    raise LookupError(reference)


def results(
    scores: Mapping[str, float | list[float]], variant: str = "default", **facts: Any
) -> dict[str, Any]:
    cases = []
    for case, value in scores.items():
        for score in value if isinstance(value, list) else [value]:
            row = {"case_id": case, "passed": score >= 0.5, "overall": score}
            cases.append(row | facts.get(case, {}))
    return {"variants": [{"variant_id": variant, "cases": cases}]}


def decide(gate: Any, now: dict[str, Any], history: list[dict[str, Any]]) -> GateResult:
    if isinstance(gate, str):
        spec = parse_gate_option(gate)
        gate = {"gate": spec.gate, **spec.params}
    question = read_question({"gate": gate, "history": history, **now})
    return decide_question(question, _refuse)[0]


def night(source: random.Random, shift: float = 0.0, cases: int = 60) -> dict[str, Any]:
    return results(
        {
            f"c{number}": min(1.0, max(0.0, 0.7 + shift + source.gauss(0, 0.05)))
            for number in range(cases)
        }
    )


@pytest.mark.parametrize(
    ("shift", "outcome"), [(0.0, "pass"), (-0.02, "inconclusive"), (-0.1, "fail"), (0.1, "pass")]
)
def test_a_drop_from_the_pooled_history_is_three_valued(shift: float, outcome: str) -> None:
    source = random.Random(3)
    history = [night(source) for _ in range(6)]
    decided = decide("no_drop_from_history", night(source, shift), history)
    assert decided.outcome == outcome, decided.message
    assert "6 runs (run 1 – run 6)" in decided.message
    assert (decided.remedy is not None) == (outcome == "inconclusive")


def test_only_the_last_runs_are_pooled() -> None:
    source = random.Random(3)
    history = [night(source, 0.2) for _ in range(4)] + [night(source) for _ in range(4)]
    decided = decide("no_drop_from_history:runs=4,margin=0.05", night(source), history)
    assert decided.outcome == "pass"
    assert "run 5 – run 8" in decided.message
    assert (
        decide("no_drop_from_history:runs=8,margin=0.05", night(source), history).outcome == "fail"
    )


def test_a_case_that_is_not_measured_now_is_no_pass() -> None:
    history = [results({"a": 1.0, "b": 1.0, "c": 1.0})] * 5
    now = results({"a": 1.0, "b": 1.0, "c": 1.0}, c={"error": "no answer"})
    decided = decide("no_drop_from_history", now, history)
    assert (decided.outcome, "1 case not measured" in decided.message) == ("inconclusive", True)
    decided = decide("no_new_failures", now, history)
    assert (decided.outcome, "1 case that passed" in decided.message) == ("inconclusive", True)


def test_a_case_that_was_blocked_before_is_no_evidence() -> None:
    before = results({"a": 1.0, "b": 1.0, "c": 1.0}, c={"blocked": True})
    now = results({"a": 1.0, "b": 1.0, "c": 0.0})
    decided = decide("no_new_failures:runs=2", now, [before] * 2)
    assert (decided.outcome, decided.details["new_and_failing"]) == (
        "inconclusive",
        ["c [default]"],
    )
    decided = decide("no_drop_from_history", now, [before] * 2)
    assert (decided.outcome, "1 case not measured" in decided.message) == ("inconclusive", True)


def test_a_case_is_looked_up_in_the_runs_that_measured_it() -> None:
    passed = results({"a": 1.0, "b": 1.0})
    blocked = results({"a": 1.0, "b": 1.0}, b={"blocked": True})
    decided = decide("no_new_failures", results({"a": 1.0, "b": 0.0}), [passed] * 5 + [blocked])
    assert (decided.outcome, decided.details["cases"]) == ("fail", ["b [default]"])


def test_a_new_variant_that_fails_is_no_pass() -> None:
    history = [results({"a": 1.0, "b": 1.0})] * 6
    decided = decide("no_new_failures", results({"a": 0.0, "b": 1.0}, variant="renamed"), history)
    assert decided.outcome == "inconclusive"
    assert "1 new and failing: a [renamed]" in decided.message


def test_the_window_is_the_gates_own_whatever_others_freeze() -> None:
    # 12 cases failed once, 21 runs ago or earlier: the last 20 runs show no noise.
    names = [f"c{number}" for number in range(30)]
    good = results(dict.fromkeys(names, 1.0))
    noisy = [results(dict.fromkeys(names, 1.0) | {f"c{night}": 0.0}) for night in range(12)]
    now = results(dict.fromkeys(names, 1.0) | {"c20": 0.0, "c21": 0.0})
    decided = decide("no_new_failures", now, noisy + [good] * 20)
    assert decided.outcome == "fail"


def test_a_new_failure_fails() -> None:
    history = [results({"a": 1.0, "b": 0.0})] * 5
    decided = decide("no_new_failures", results({"a": 0.0, "b": 0.0}), history)
    assert decided.outcome == "fail"
    assert decided.message.startswith("1 new failure since 5 runs (run 1 – run 5): a [default]")


@pytest.mark.parametrize(
    ("broken", "failed_once", "outcome"),
    [
        pytest.param(1, 3, "inconclusive", id="as many as in any run"),
        pytest.param(3, 3, "fail", id="more than in any run"),
        pytest.param(1, 0, "fail", id="in a suite without noise"),
    ],
)
def test_as_many_new_failures_as_in_any_earlier_run_may_be_chance(
    broken: int, failed_once: int, outcome: str
) -> None:
    passes = {f"c{number}": 1.0 for number in range(8)}
    history = [passes | ({f"c{run}": 0.0} if run < failed_once else {}) for run in range(8)]
    now = passes | {f"c{7 - number}": 0.0 for number in range(broken)}
    decided = decide("no_new_failures:runs=5", results(now), [results(each) for each in history])
    assert decided.outcome == outcome, decided.message
    assert ("may be chance: 3 cases" in decided.message) == (outcome == "inconclusive")
    assert (decided.remedy is not None) == (outcome == "inconclusive")


def test_too_few_runs_are_inconclusive_with_their_number() -> None:
    decided = decide("no_new_failures", results({"a": 0.0}), [results({"a": 1.0})] * 4)
    assert (decided.outcome, "there are 4" in decided.message) == ("inconclusive", True)
    decided = decide("no_drift", results({"a": 0.0}), [results({"a": 1.0})] * 7)
    assert (decided.outcome, "there are 7" in decided.message) == ("inconclusive", True)


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        pytest.param([1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.0, id="differed between runs"),
        pytest.param([[1.0, 0.0], 1.0, 1.0, 1.0, 1.0, 1.0], 0.0, id="differed between iterations"),
        pytest.param([1.0] * 6, [1.0, 0.0], id="differs between the iterations of this run"),
    ],
)
def test_a_flaky_case_never_counts(earlier: list[Any], now: Any) -> None:
    history = [results({"a": score, "b": 1.0}) for score in earlier]
    decided = decide("no_new_failures", results({"a": now, "b": 1.0}), history)
    assert decided.outcome == "pass"
    assert "1 flaky case not counted" in decided.message


def test_a_slow_drift_is_found_that_no_single_night_shows() -> None:
    source = random.Random(8)
    history = [night(source) for _ in range(10)]
    drifting = [night(source, -0.009 * number) for number in range(1, 7)]
    decided = decide("no_drift", drifting[-1], history + drifting[:-1])
    assert decided.outcome == "fail"
    assert "CUSUM" in decided.message


def test_a_rising_score_is_no_drift() -> None:
    source = random.Random(8)
    history = [night(source) for _ in range(10)]
    rising = [night(source, 0.02 * number) for number in range(1, 7)]
    assert decide("no_drift", rising[-1], history + rising[:-1]).outcome == "pass"


def test_latency_drifts_upwards() -> None:
    source = random.Random(2)

    def timed(mean_ms: float) -> dict[str, Any]:
        now = results({f"c{number}": 1.0 for number in range(20)})
        for row in now["variants"][0]["cases"]:
            row["duration_ms"] = source.gauss(mean_ms, 5)
        return now

    history = [timed(100) for _ in range(8)]
    later = [timed(120 + 10 * number) for number in range(3)]
    assert decide("no_drift:metric=latency", timed(100), history).outcome == "pass"
    assert decide("no_drift:metric=latency", later[-1], history + later[:-1]).outcome == "fail"
    assert decide("no_drift:metric=cost", timed(100), history).outcome == "inconclusive"


def test_one_case_of_a_constant_suite_is_no_drift() -> None:
    steady = {f"c{number}": 1.0 for number in range(50)}
    now = steady | {"c7": 0.0}
    assert decide("no_drift", results(now), [results(steady)] * 8).outcome == "pass"


@pytest.mark.parametrize(
    ("iterations", "k", "outcome"),
    [
        ([1.0, 1.0, 1.0], 3, "pass"),
        ([1.0, 1.0, 0.0], 3, "fail"),
        ([1.0, 1.0, 0.0], 1, "fail"),
        ([1.0, 1.0], 3, "inconclusive"),
    ],
)
def test_reliable_is_pass_all_k(iterations: list[float], k: int, outcome: str) -> None:
    now = results({"a": [1.0] * len(iterations), "b": iterations})
    decided = decide({"gate": "reliable", "k": k, "threshold": 0.9}, now, [])
    assert decided.outcome == outcome, decided.message


def test_an_error_is_no_success_of_reliable() -> None:
    now = results({"a": [1.0, 1.0], "b": [1.0, 1.0]}, b={"error": "x"})
    assert decide({"gate": "reliable", "k": 2, "threshold": 0.9}, now, []).outcome == "fail"


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("no_new_failures=0", "at least 1"),
        ("no_new_failures=2.5", "whole number"),
        ("no_drift=speed", "Known: cost, latency"),
        ("no_drop_from_history:margin=2", "from 0 to 1"),
        ("reliable", "required"),
    ],
)
def test_wrong_parameters_are_refused(written: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake):
        parse_gate_option(written)
