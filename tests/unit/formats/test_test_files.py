"""Test files: what becomes of the suite level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.model.run import GateSpec
from evalcore.model.suite import Case, Reducer, SuiteDefinition
from evalcore.model.target import DEFAULT_VARIANT, Variant
from tests.unit.formats.loading import cases_of, load_text, places_of, problems_of, usage_error_of

TEST = "{id: a, input: hi, fixtures: {output: hello}, assertions: [{type: equals, value: hello}]}"
LIVE = "{id: a, input: hi, assertions: [{type: equals, value: hi}]}"
TARGETS = "targets: [{name: default, provider: echo}, {name: other, provider: echo}]"


def case(folder: Path, suite: str = "", test: str = TEST, **options: Any) -> Case:
    return cases_of(folder, f"{suite}\ntests: [{test}]", **options)["a"]


def definition(folder: Path, suite: str, test: str = LIVE, **options: Any) -> SuiteDefinition:
    return load_text(folder, f"{suite}\ntests: [{test}]", **options).definition


@pytest.mark.parametrize("key", ["tests", "eval_cases", "evalcases"])
def test_the_list_of_tests_has_three_names(tmp_path: Path, key: str) -> None:
    assert list(cases_of(tmp_path, f"{key}: [{TEST}]")) == ["a"]


@pytest.mark.parametrize("ids", [["my-test"], ["my-test", "second", "third"]], ids=["one", "three"])
def test_criteria_without_a_grader_are_warned_about_in_the_documents_words(
    tmp_path: Path, ids: list[str]
) -> None:
    tests = ", ".join(
        f"{{id: {id_}, input: a, criteria: c, fixtures: {{output: b}}}}" for id_ in ids
    )

    assert load_text(tmp_path, f"assert: [{{type: is-json}}]\ntests: [{tests}]").warnings == tuple(
        f"Test '{id_}': criteria is defined but no evaluator in assertions will evaluate it. "
        "Add 'type: llm-grader' to assertions, or remove criteria if it is documentation-only."
        for id_ in ids
    )


@pytest.mark.parametrize(
    "grader",
    [
        "type: llm-grader",
        "type: code-grader, command: x",
        "type: composite, assertions: [{type: llm-grader}]",
    ],
)
def test_a_declared_grader_reads_the_criteria(tmp_path: Path, grader: str) -> None:
    test = f"{{id: a, input: b, criteria: c, fixtures: {{output: d}}, assert: [{{{grader}}}]}}"

    judge = "targets: [{name: judge, provider: echo}]"

    assert load_text(tmp_path, f"{judge}\ntests: [{test}]").warnings == ()


def test_many_warnings_that_say_the_same_are_one_line_that_names_each_test(tmp_path: Path) -> None:
    tests = ", ".join(
        f"{{id: t{n}, input: b, criteria: c, fixtures: {{output: d}}, assert: [{{type: is-json}}]}}"
        for n in range(25)
    )
    warnings = load_text(tmp_path, f"tests: [{tests}]").warnings

    (warning,) = warnings
    names = ", ".join(f"Test 't{number}'" for number in range(25))
    assert warning.startswith(f"{names} (25): criteria is defined but no evaluator")


def test_strict_makes_mistakes_of_warnings(tmp_path: Path) -> None:
    text = """\
        assertions: [{type: is-json, flags: i}]
        tests:
          - id: a
            input: a
            criteria: c
            fixtures: {output: b}
            assertions: [{type: contains, value: b}]
        """

    assert places_of(problems_of(tmp_path, text, strict=True)) == [
        (1, "assertions[0].flags"),
        (5, "tests[0].criteria"),
    ]
    assert load_text(tmp_path, text).warnings[0] == (
        "assertions[0].flags: has no effect: only 'regex' has flags"
    )


@pytest.mark.parametrize("limit_usd", [2.0, 9.0])
def test_of_two_budgets_the_smaller_one_holds(tmp_path: Path, limit_usd: float) -> None:
    suite = load_text(
        tmp_path,
        f"""\
        execution: {{total_budget_usd: 5}}
        evalcore: {{limits: {{max_cost_usd: {limit_usd}}}}}
        tests:
          - {{id: a, input: a, fixtures: {{output: b}}, assertions: [{{type: contains, value: b}}]}}
        """,
    )
    assert suite.definition.limits.max_cost_usd == min(5, limit_usd)


@pytest.mark.parametrize(
    ("suite", "test", "option", "threshold"),
    [
        pytest.param("", "", None, 0.8, id="default"),
        pytest.param("execution: {threshold: 0.5}", "", None, 0.5, id="suite"),
        pytest.param("evalcore: {threshold: 0.4}", "", None, 0.4, id="evalcore"),
        pytest.param("execution: {threshold: 0.5}", "", 0.6, 0.6, id="caller over suite"),
        pytest.param(
            "execution: {threshold: 0.5}", "execution: {threshold: 0}", 0.6, 0.0, id="test over all"
        ),
    ],
)
def test_the_nearest_threshold_holds(
    tmp_path: Path, suite: str, test: str, option: float | None, threshold: float
) -> None:
    written = TEST[:-1] + f", {test}}}" if test else TEST

    assert case(tmp_path, suite, written, threshold=option).threshold == threshold


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ("{count: 3}", (3, Reducer.MEAN, None)),
        ("{count: 3, strategy: median}", (3, Reducer.MEDIAN, None)),
        ("{count: 3, strategy: pass_at_k}", (3, Reducer.PASS_AT_K, None)),
        ("{count: 3, strategy: at_least_k, k: 2}", (3, Reducer.AT_LEAST_K, 2)),
        (
            "{count: 3, strategy: confidence_interval}",
            (3, Reducer.CONFIDENCE_INTERVAL, None),
        ),
    ],
)
def test_trials_are_iterations_with_a_reducer(
    tmp_path: Path, trials: str, expected: tuple[int, Reducer, int | None]
) -> None:
    policy = definition(tmp_path, f"execution: {{trials: {trials}}}", TEST).policy

    assert (policy.iterations, policy.reducer, policy.k) == expected


def test_the_gate_is_every_test_passes(tmp_path: Path) -> None:
    assert definition(tmp_path, "", TEST).policy.gates == (
        GateSpec("pass_rate", {"threshold": 1.0, "per_variant": False}),
        GateSpec("errors"),
    )


def test_execution_targets_are_variants(tmp_path: Path) -> None:
    found = definition(tmp_path, f"{TARGETS}\nexecution: {{targets: [other, default]}}")

    assert found.variants == (
        Variant("other", target="other"),
        Variant("default", target="default"),
    )
    assert sorted(found.targets) == ["default", "other"]


def test_an_execution_target_may_be_the_baseline(tmp_path: Path) -> None:
    suite = f"{TARGETS}\nexecution: {{targets: [other, default]}}\nevalcore: {{baseline: other}}"

    assert definition(tmp_path, suite).baseline == "other"
    assert definition(tmp_path, suite, target="default").baseline is None


@pytest.mark.parametrize(
    ("suite", "option", "target"),
    [
        pytest.param("", None, "default", id="the one named default"),
        pytest.param("execution: {target: other}", None, "other", id="the suite's"),
        pytest.param("execution: {target: other}", "default", "default", id="the caller's"),
        pytest.param("execution: {targets: [other]}", "default", "default", id="over variants"),
    ],
)
def test_the_default_target_is_the_callers_the_suites_or_the_one_called_default(
    tmp_path: Path, suite: str, option: str | None, target: str
) -> None:
    found = definition(tmp_path, f"{TARGETS}\n{suite}", target=option)

    assert found.default_target == target
    assert found.variants == (DEFAULT_VARIANT,)
    assert target in found.targets


@pytest.mark.parametrize(
    ("suite", "workers"),
    [
        ("execution: {workers: 3}", 3),
        ("evalcore: {limits: {concurrency: 2}}", 2),
        ("", None),
    ],
)
def test_workers_are_the_concurrency(tmp_path: Path, suite: str, workers: int | None) -> None:
    assert definition(tmp_path, suite, TEST).limits.concurrency == workers
    assert definition(tmp_path, suite, TEST, concurrency=9).limits.concurrency == 9


@pytest.mark.parametrize(
    ("suite", "name", "tags"),
    [
        ("", "suite", ()),
        ("name: own\ntags: [a]", "own", ("a",)),
        ("evalcore: {name: other, tags: [b]}", "other", ("b",)),
    ],
)
def test_name_and_tags_stand_in_either_place(
    tmp_path: Path, suite: str, name: str, tags: tuple[str, ...]
) -> None:
    found = definition(tmp_path, suite, TEST)

    assert (found.name, found.tags) == (name, tags)


def test_an_unknown_target_of_the_caller_is_a_usage_error(tmp_path: Path) -> None:
    message = usage_error_of(tmp_path, f"{TARGETS}\ntests: [{LIVE}]", target="defalt")

    assert message == "suite.eval.yaml: --target: unknown target 'defalt'. Did you mean 'default'?"
