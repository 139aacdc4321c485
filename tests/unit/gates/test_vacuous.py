"""Nothing measured is never a pass: every gate of the table over every kind of nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from evalcore.formats.single_gate import read_question
from evalcore.gates.builtin import CustomGate, GateFunctions
from evalcore.gates.decide import decide_gates, decide_run, unevaluated_gates
from evalcore.gates.registry import GATES, parse_gate
from evalcore.model.run import Decision, GateOutcome, GateSpec
from evalcore.model.suite import ErrorPolicy, Policy, ScoreRule
from evalcore.model.summary import Summary
from evalcore.pipeline.gates import decide_question, summarise_question

# Situations are aggregated once, in one process.
pytestmark = pytest.mark.xdist_group("vacuous")

Rows = list[dict[str, Any]]

CHEAP = {"durationMs": 1, "costUsd": 0.0, "inputTokens": 1, "outputTokens": 1}
# Bounds that every measured value keeps: what does not pass is what is not measured.
GATE_PARAMS: dict[str, list[dict[str, Any]]] = {
    "cost_under": [{"max": 1e9}, {"max": 1e9, "per_case": True}],
    "custom": [{"callable": "gates:passes"}],
    "error_rate_under": [{"threshold": 1.0}],
    "errors": [{}],
    "latency_under": [{"max": 1e9}],
    "no_drift": [{}, {"metric": "pass_rate"}, {"metric": "latency"}, {"metric": "cost"}],
    "no_drop_from_history": [{"margin": 1.0}],
    "no_metric_regressions": [{"score": 1.0}],
    "no_new_failures": [{"runs": 1}],
    "no_regressions": [
        {},
        {"first_run": "pass"},
        {"first_run": "pass", "allow_metric_regressions": False},
    ],
    "no_significant_regression": [{"margin": 1.0}],
    "p95_latency_under": [{"max": 1e9}],
    "pass_rate": [{"threshold": 0.0}, {"threshold": 0.0, "per_variant": True}],
    "reliable": [{"k": 1, "threshold": 0.0}],
    "required_assertions": [{}],
    "required_cases": [{"case_ids": ["c0"]}],
    "score_at_least": [{"threshold": 0.0}],
    "threshold": [{"threshold": 0.0}],
    "tokens_under": [{"max": 1e9}],
}
EVERY = tuple(GATE_PARAMS)
ABOUT_ERRORS = frozenset({"errors", "error_rate_under"})
COMPARING = tuple(name for name in EVERY if GATES[name].compares)
OVER_TIME = ("no_drift", "no_drop_from_history", "no_new_failures")


def passes(_: Any) -> bool:
    return True


def returns_nothing(_: Any) -> None:
    return None


def resolve(gate: CustomGate) -> Any:
    return {"gates:passes": passes, "gates:nothing": returns_nothing}[str(gate.fn)]


FUNCTIONS = GateFunctions(resolve=resolve)
GATES_OF = {
    name: [parse_gate({"gate": name, **params}) for params in written]
    for name, written in GATE_PARAMS.items()
}


def good(count: int = 6, first: int = 0, **more: Any) -> Rows:
    numbers = range(first, first + count)
    return [{"caseId": f"c{n}", "passed": True, "overall": 1.0, **CHEAP, **more} for n in numbers]


def state(**facts: Any) -> Rows:
    return [{"caseId": f"c{number}", **facts} for number in range(6)]


ERROR = state(error="boom", **CHEAP)
BLOCKED = state(blocked=True, overall=1.0, **CHEAP)
SKIPPED = state(status="skipped")
CANCELLED = state(status="cancelled")
MIXED = [*ERROR[:2], *BLOCKED[2:4], *SKIPPED[4:5], *CANCELLED[5:]]


def variants(**rows: Rows) -> list[dict[str, Any]]:
    return [{"variantId": name, "cases": cases} for name, cases in rows.items()]


def asked(errors: str = "fail", history: Any = None, **rows: Rows) -> dict[str, Any]:
    """Return a question about variants; `base` is the baseline where it is one of them."""
    question: dict[str, Any] = {"errors": errors, "variants": variants(**rows)}
    if "base" in rows:
        question["baseline"] = "base"
    if history is not None:
        question["history"] = history
    return question


def nights(**rows: Rows) -> list[dict[str, Any]]:
    return [{"variants": variants(**rows)}] * 8


BAD = good(passed=False, overall=0.0)
GOOD_NIGHTS = nights(cand=good())

# Situation: its question, and the gates that it leaves without anything to decide over.
SITUATIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    **{
        f"all in error, errors {errors}": (asked(errors, GOOD_NIGHTS, cand=ERROR), EVERY)
        for errors in ("fail", "zero", "exclude")
    },
    **{
        f"all {name}": (asked(errors, GOOD_NIGHTS, cand=rows), EVERY)
        for name, errors, rows in [
            ("blocked", "fail", BLOCKED),
            ("skipped", "zero", SKIPPED),
            ("cancelled", "exclude", CANCELLED),
            ("of it", "zero", MIXED),
        ]
    },
    "nothing but blocked items beside a blocked baseline": (
        asked(base=BLOCKED, cand=BLOCKED),
        EVERY,
    ),
    "no variant": (asked(history=GOOD_NIGHTS), EVERY),
    "a variant without results": (asked(history=GOOD_NIGHTS, cand=[]), EVERY),
    "variants without results": (asked(base=[], cand=[]), EVERY),
    "a variant without results beside another": (
        asked(history=GOOD_NIGHTS, base=good(), cand=[]),
        tuple(name for name in EVERY if name not in ABOUT_ERRORS),
    ),
    "a variant excluded beside another": (
        asked("exclude", GOOD_NIGHTS, base=good(), cand=ERROR),
        tuple(name for name in EVERY if name not in ABOUT_ERRORS),
    ),
    "half of the cases deleted": (asked(base=good(), cand=good(3)), COMPARING),
    "all cases renamed": (asked(base=good(), cand=good(first=9)), (*COMPARING, "required_cases")),
    **{
        f"baseline {name}": (asked("zero", base=rows, cand=good()), COMPARING)
        for name, rows in {
            "in error": ERROR,
            "blocked": BLOCKED,
            "without results": [],
        }.items()
    },
    "no baseline": (
        asked(cand=good()),
        tuple(name for name in COMPARING if name != "no_regressions"),
    ),
    "the only variant is the baseline": (asked(base=good()), COMPARING),
    "no measures": (
        asked(base=state(passed=True), cand=state(passed=True)),
        (
            *("cost_under", "tokens_under", "latency_under", "p95_latency_under"),
            *("score_at_least", "threshold", "no_metric_regressions"),
            "no_significant_regression",
        ),
    ),
    "measures of one side only": (
        asked(base=state(passed=True), cand=good()),
        ("no_metric_regressions", "no_significant_regression"),
    ),
    "one item without latency": (
        asked(cand=[*good(5), {"caseId": "c5", "passed": True}]),
        ("latency_under", "p95_latency_under"),
    ),
    "a required case is not run": (asked(cand=good(5, first=1)), ("required_cases",)),
    "a required case is not run in one variant": (
        asked(cand=good(), other=good(5, first=1)),
        ("required_cases",),
    ),
    **{
        f"a required case is {name}": (asked(cand=[row, *good(5, first=1)]), ("required_cases",))
        for name, row in {
            "in error": ERROR[0],
            "blocked": BLOCKED[0],
            "skipped": SKIPPED[0],
            "cancelled": CANCELLED[0],
        }.items()
    },
    "an empty history": (asked(history=[], cand=good()), OVER_TIME),
    **{
        f"history {name}": (
            asked("zero", nights(cand=rows), cand=good()),
            ("no_drop_from_history", "no_drift"),
        )
        for name, rows in {
            "blocked": BLOCKED,
            "without results": [],
        }.items()
    },
    **{
        f"history in error, now {name}": (asked("zero", nights(cand=before), cand=now), gates)
        for name, before, now, gates in [
            ("passing", ERROR, good(), ("no_drop_from_history", "no_drift")),
            ("failing", ERROR, BAD, OVER_TIME),
            ("in error", ERROR, ERROR, EVERY),
        ]
    },
    "history of other cases": (
        asked(history=nights(cand=good(first=20)), cand=good()),
        OVER_TIME,
    ),
    "history of other variants, and failures": (
        asked(history=nights(other=good()), cand=BAD),
        OVER_TIME,
    ),
    "a case with a new name fails": (
        asked(history=GOOD_NIGHTS, cand=[*good(5), *good(1, 9, passed=False, overall=0.0)]),
        OVER_TIME,
    ),
    "half of the cases of the history deleted": (
        asked(history=GOOD_NIGHTS, cand=good(3)),
        OVER_TIME,
    ),
}  # fmt: skip


def gates_of(situation: str) -> tuple[GateSpec, ...]:
    return tuple(gate for name in SITUATIONS[situation][1] for gate in GATES_OF[name])


def written(gate: GateSpec) -> str:
    """Return the gate as `--gate` takes it, for the ids."""
    return ",".join([gate.gate, *(f"{key}={value}" for key, value in gate.params.items())])


@cache
def summary_of(situation: str) -> Summary:
    """Return the aggregates for all gates of a situation at once: a database costs most."""
    question = {"gate": "errors", **SITUATIONS[situation][0]}
    return summarise_question(read_question(question), policy_of(situation, gates_of(situation)))


def policy_of(situation: str, gates: tuple[GateSpec, ...]) -> Policy:
    errors = ErrorPolicy(SITUATIONS[situation][0]["errors"])
    return Policy(ScoreRule.BLOCKS, gates, errors=errors)


def rows_of_the_table() -> list[Any]:
    return [
        pytest.param(situation, gate, id=f"{situation}-{written(gate)}")
        for situation in SITUATIONS
        for gate in gates_of(situation)
    ]


TABLE = rows_of_the_table()


def test_the_table_is_about_every_gate() -> None:
    assert set(EVERY) == set(GATES)
    assert len(TABLE) >= 100


@pytest.mark.parametrize(("situation", "gate"), TABLE)
def test_nothing_measured_is_never_a_pass(situation: str, gate: GateSpec) -> None:
    summary, policy = summary_of(situation), policy_of(situation, (gate,))
    (result,) = decide_gates(policy, summary, FUNCTIONS)
    assert decide_run([result], summary) is not Decision.PASS
    assert gate.gate in ABOUT_ERRORS or not result.passed, result.message
    if summary.nothing_evaluated:
        (result,) = unevaluated_gates(policy, summary)
        assert gate.gate in ABOUT_ERRORS or result.outcome is GateOutcome.INCONCLUSIVE
        assert decide_run([result], summary, evaluated=False) is Decision.ERROR


@cache
def measured_summary() -> Summary:
    question = asked(history=nights(cand=good(30), base=good(30)), base=good(30), cand=good(30))
    gates = tuple(gate for name in EVERY for gate in GATES_OF[name])
    policy = Policy(ScoreRule.BLOCKS, gates)
    return summarise_question(read_question({"gate": "errors", **question}), policy)


@pytest.mark.parametrize("gate", [gate for name in EVERY for gate in GATES_OF[name]], ids=written)
def test_measured_results_pass_the_same_gates(gate: GateSpec) -> None:
    """The bounds of the table are those that every measured result keeps."""
    summary = measured_summary()
    (result,) = decide_gates(Policy(ScoreRule.BLOCKS, (gate,)), summary, FUNCTIONS)
    assert result.passed, result.message
    assert decide_run([result], summary) is Decision.PASS


def test_a_gate_of_ones_own_that_returns_nothing_fails() -> None:
    question = {"gate": {"gate": "custom", "callable": "gates:nothing"}, **asked(cand=good())}
    assert decide_question(read_question(question), resolve)[0].outcome is GateOutcome.FAIL
