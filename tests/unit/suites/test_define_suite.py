"""`define_suite` checks everything and tells all mistakes together (docs/reference/suites.md)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from evalcore import SuiteError, define_suite, gates, variant
from evalcore.formats.options import LoadOptions

CASE = {"id": "c1", "input": "x", "assertions": [{"type": "behavior.no_errors"}]}
SOUND: dict[str, Any] = {"name": "n", "cases": [CASE], "variants": [variant("a"), variant("b")]}

KEY = "sk-literal-0123456789"
GPT = {"name": "gpt", "provider": "openai", "model": "m"}
REFUSED = "must not be written here, where it would be stored with the run; write ${{ NAME }}"


def flow(case_input: Any) -> Any:
    return case_input


def mistakes(**changed: Any) -> str:
    with pytest.raises(SuiteError) as raised:
        define_suite(**{**SOUND, "flow": flow, **changed})
    return str(raised.value)


@pytest.mark.parametrize(
    ("changed", "mistake"),
    [
        ({"name": ""}, "name: is required"),
        ({"flow": None}, "flow: is required"),
        ({"cases": []}, "cases: holds no case"),
        ({"cases": [CASE, CASE]}, "cases[1].id: duplicate case id: c1"),
        ({"variants": [variant("a"), variant("a")]}, "variants[1].id: duplicate variant id: a"),
        ({"baseline": "c"}, "baseline: no variant is called 'c'"),
        ({"gates": [gates.required_cases(["c2"])]}, "no case has the id 'c2'"),
        ({"gates": [gates.pass_rate(1.1)]}, "'threshold' must be a number from 0 to 1"),
        ({"gates": [gates.cost_under(-1)]}, "'max' must be at least 0"),
        ({"cases": [{"id": "a", "input": {1, 2}}]}, "case 'a' holds a value that JSON cannot"),
        ({"variants": "ab"}, "variants: expected a list, got 'ab'"),
        ({"cases": {"c1": CASE}}, "cases: expected a list of cases, a path, or a list of paths"),
        ({"gates": gates.pass_rate(1)}, "gates: expected a list, got PassRate"),
        ({"scorers": [5]}, "scorers[0]: a scorer is a name or a mapping"),
        ({"assertions": flow}, "assertions: expected a list, got function"),
        ({"targets": GPT}, "targets: expected a list, got a mapping"),
        ({"iteration": 3}, "Did you mean 'iterations'?"),
        ({"targets": [{**GPT, "api_key": KEY}]}, f"targets[0].api_key: {REFUSED}"),
        (
            {"targets": [{**GPT, "headers": {"X-Api-Key": KEY}}]},
            f"targets[0].headers.X-Api-Key: {REFUSED}",
        ),
        ({"flow": {**GPT, "api_key": KEY}}, f"flow.api_key: {REFUSED}"),
        (
            {"variants": [variant("a", config={"api_key": KEY})]},
            f"variants[0].config.api_key: {REFUSED}",
        ),
    ],
)
def test_a_mistake(changed: dict[str, Any], mistake: str) -> None:
    told = mistakes(**changed)
    assert mistake in told
    assert KEY not in told


def test_all_mistakes_are_told_together() -> None:
    text = mistakes(
        name="", flow=None, cases=[], variants="", baseline="x", gates=[gates.pass_rate(2)]
    )
    for path in ("name", "flow", "cases", "variants", "baseline", "gates[0]"):
        assert f"suite: {path}: " in text


def test_a_suite_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="flow"):
        define_suite(**SOUND)


def test_functions_are_named_in_the_plan_and_change_with_their_source() -> None:
    def make(greeting: str) -> Any:
        return lambda case_input: greeting + str(case_input)

    one, other = (define_suite(**SOUND, flow=make(text)).raw["flow"] for text in ("hi", "ho"))
    assert one["callable"] == other["callable"] == "local:lambda"
    assert one["behaviour"] != other["behaviour"]


def test_two_functions_of_one_name_have_two_references() -> None:
    case = {**CASE, "assertions": [lambda output: True, lambda output: False]}
    suite = define_suite(**{**SOUND, "cases": [case]}, flow=flow)
    assert len(suite.objects) == 3


def test_none_leaves_out_what_a_gate_has_by_default() -> None:
    suite = define_suite(**SOUND, flow=flow, gates=[gates.no_metric_regressions(latency=None)])
    assert suite.raw["gates"] == [{"gate": "no_metric_regressions", "latency": None}]
    plain = define_suite(**SOUND, flow=flow, gates=[gates.no_metric_regressions()])
    assert plain.raw["gates"] == [{"gate": "no_metric_regressions"}]


def test_the_public_names_cost_nothing_until_they_are_used() -> None:
    code = (
        "import sys, evalcore, evalcore.cli.main\n"
        "assert not [name for name in sys.modules if name.startswith('evalcore.suites')]\n"
        "from evalcore import define_suite, variant, gates, run_suite, run_suite_async, run_eval\n"
        "import evalcore.gates.table, evalcore.pipeline\n"
        "from evalcore import gates\n"
        "assert gates.custom('a', 'b', len).fn is len\n"
        "assert gates.pass_rate(0.5).params['threshold'] == 0.5\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""


NAN = float("nan")


@pytest.mark.parametrize(
    ("chosen", "mistake"),
    [
        ({"config": 5}, "variants[0].config: expected a mapping, got the number 5"),
        ({"config": {"a": {1}}}, "variants[0].config: holds a value that JSON cannot"),
        ({"config": {"a": [NAN]}}, "variants[0].config.a[0]: holds a value that JSON cannot"),
        ({"tags": "smoke"}, "variants[0].tags: expected a list, got 'smoke'"),
    ],
    ids=["a number", "a set", "NaN", "one tag"],
)
def test_a_mistake_in_a_variant_is_told_with_its_place(
    chosen: dict[str, Any], mistake: str
) -> None:
    with pytest.raises(SuiteError) as caught:
        define_suite("s", lambda case_input: "x", [{"id": "a"}], [variant("v", **chosen)])
    assert mistake in str(caught.value)


@pytest.mark.parametrize(
    ("value", "place", "reason"),
    [
        ({1, 2}, "", "set"),
        (b"x", "", "bytes"),
        (object(), "", "object"),
        (2**70, "", "64-bit"),
        (NAN, "", "NaN or an infinite number"),
        ({"a": [None, NAN]}, ".a[1]", "NaN or an infinite number"),
        ({"a": {1: 2, "1": 3}}, ".a", "two keys of the same text"),
    ],
    ids=["a set", "bytes", "an object", "a long integer", "NaN", "NaN within", "equal keys"],
)
def test_an_expected_value_that_json_cannot_hold_is_a_mistake(
    value: Any, place: str, reason: str
) -> None:
    check = {"type": "output.equals", "value": value}
    for changed, path in (
        ({"cases": [{"id": "a", "assertions": [check]}]}, "cases[0].assertions[0].value"),
        ({"assertions": [check]}, "assertions[0].value"),
    ):
        (line,) = mistakes(**changed).splitlines()
        assert f"{path}{place}: holds a value that JSON cannot" in line
        assert reason in line


def test_a_mistake_is_told_once() -> None:
    check = {"type": "contains", "value": "x", "weight": NAN}
    (line,) = mistakes(assertions=[check]).splitlines()
    assert "assertions[0].weight: must be a finite number" in line


@pytest.mark.parametrize("more", [{}, {"variants": ()}, {"variants": None}])
def test_a_suite_without_variants_has_the_unchanged_one(more: dict[str, Any]) -> None:
    suite = define_suite("n", flow, [CASE], **more).read(LoadOptions())
    assert [each.id for each in suite.definition.variants] == ["default"]
