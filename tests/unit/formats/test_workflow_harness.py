"""Workflow files: what becomes of `eval:` and of the `evalcore:` section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.registry import AssertionType, Dialect, assertion_types
from evalcore.model.assertion import Assertion
from evalcore.model.run import GateSpec
from evalcore.model.suite import ErrorPolicy, Reducer, Suite
from evalcore.model.target import Variant
from evalcore.shapes import adapter
from evalcore.workflow.reading import block_class
from tests.unit.formats.loading import cases_of, load_text, problems_of

ONE = """
  cases:
    - id: a
      fixtures: {x: "hello"}
      expected: {x: [{type: contains, value: hello}]}
"""


def suite(folder: Path, rest: str = "", evals: str = "", **options: Any) -> Suite:
    return load_text(folder, f"eval:{evals}{ONE}{rest}", **options)


def assertion(folder: Path, written: str) -> Assertion:
    text = f"eval: {{cases: [{{id: a, fixtures: {{x: y}}, expected: {{x: [{written}]}}}}]}}"
    return cases_of(folder, text)["a"].assertions[0]


@pytest.mark.parametrize(
    ("evals", "section", "option", "threshold"),
    [
        pytest.param("", "", None, 1.0, id="omitted"),
        pytest.param("\n  threshold: null", "", None, 1.0, id="null"),
        pytest.param("\n  threshold: 0.6", "", None, 0.6, id="own key"),
        pytest.param("", "evalcore: {threshold: 0.7}", None, 0.7, id="evalcore section"),
        pytest.param("\n  threshold: 0.6", "", 0.9, 0.9, id="the caller wins"),
        pytest.param("\n  threshold: 0", "", None, 0.0, id="zero"),
    ],
)
def test_the_threshold(
    tmp_path: Path, evals: str, section: str, option: float | None, threshold: float
) -> None:
    policy = suite(tmp_path, section, evals, threshold=option).definition.policy

    assert policy.threshold == threshold
    assert policy.gates == (GateSpec("threshold", {"threshold": threshold}), GateSpec("errors"))


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        pytest.param("", "suite", id="the file's stem without .eval"),
        pytest.param("workflow: {name: research}", "research", id="the workflow's"),
        pytest.param("workflow: {name: w}\nevalcore: {name: own}", "own", id="evalcore's"),
    ],
)
def test_a_suite_has_the_name_of_its_section_its_workflow_or_its_file(
    tmp_path: Path, rest: str, name: str
) -> None:
    assert suite(tmp_path, rest).definition.name == name


def test_fixtures_that_cover_what_is_expected_are_the_evidence(tmp_path: Path) -> None:
    text = """\
        eval:
          cases:
            - id: a
              fixtures: {first: one, last: two, extra: three}
              expected:
                last: [{type: equals, value: two}]
                first: [{type: equals, value: one}]
        """
    evidence = cases_of(tmp_path, text)["a"].fixture

    assert evidence is not None
    assert evidence.outputs == {"first": "one", "last": "two", "extra": "three"}
    assert evidence.output == "one"


def test_a_case_without_all_fixtures_says_exactly_why_it_cannot_run(tmp_path: Path) -> None:
    text = """\
        eval:
          cases:
            - {id: live, fixtures: {a: b}, expected: {x: [{type: equals, value: c}]}}
        """
    case = cases_of(tmp_path, text)["live"]

    assert case.fixture is None
    assert case.reason_not_executable == (
        "Case 'live' requires an executor (no fixtures for all expected blocks) "
        "but no executor was provided."
    )


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        pytest.param("", "case 'a': no fixture for x, and nothing can execute", id="no blocks"),
        pytest.param(
            "blocks: {x: {type: llm, prompt_template: t}}\n"
            "workflow: {name: w, entry: x, transitions: [{from: x, to: null}]}\n",
            "case 'a': no fixture for x, and nothing can execute the workflow: add fixtures",
            id="no provider",
        ),
        pytest.param(
            "blocks: {x: {type: code, code: 'def main(data): return 1'}}\n"
            "workflow: {name: w, entry: x, transitions: [{from: x, to: null}]}\n",
            None,
            id="executable",
        ),
    ],
)
def test_a_case_that_nothing_can_execute_is_a_warning(
    tmp_path: Path, text: str, warned: str | None
) -> None:
    case = "{id: a, expected: {x: [{type: equals, value: c}]}}"
    suite = load_text(tmp_path, f"{text}eval: {{cases: [{case}]}}\n")
    assert [warning[: len(warned or "")] for warning in suite.warnings] == (
        [] if warned is None else [warned]
    )


def test_measures_of_fixtures_are_summed_over_blocks(tmp_path: Path) -> None:
    text = """\
        eval:
          cases:
            - id: a
              fixtures:
                x: {output: one, metrics: {latency_ms: 2.5, input_tokens: 3}}
                y: {output: two, metrics: {latency_ms: 1.5, cost_usd: 0.1}}
              expected: {x: [{type: equals, value: one}]}
        """
    evidence = cases_of(tmp_path, text)["a"].fixture

    assert evidence is not None
    assert evidence.metrics.latency_ms == 4.0
    assert evidence.metrics.input_tokens == 3
    assert evidence.metrics.cost_usd == 0.1
    assert evidence.metrics.output_tokens is None
    assert evidence.block_metrics["y"].latency_ms == 1.5


def test_a_case_that_asserts_nothing_is_warned_about(tmp_path: Path) -> None:
    few = load_text(tmp_path, "eval: {cases: [{id: a, fixtures: {x: y}}, {id: b}]}")
    more = load_text(tmp_path, "eval: {cases: [{id: a}, {id: b}, {id: c}, {id: d}]}")

    assert few.warnings == tuple(
        f"case '{name}': no 'expected': it asserts nothing" for name in "ab"
    )
    (warning,) = more.warnings
    assert (
        warning == "case 'a', case 'b', case 'c', case 'd' (4): no 'expected': it asserts nothing"
    )
    assert [case.fixture is not None for case in few.cases] == [True, True]


def test_strict_makes_mistakes_of_warnings(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "eval:\n  cases:\n    - {id: a}\n    - {id: b}\n", strict=True)

    assert [(problem.line, problem.path) for problem in found] == [
        (3, "eval.cases[0]"),
        (4, "eval.cases[1]"),
    ]


@pytest.mark.parametrize(
    ("written", "check", "params"),
    [
        ("{type: contains, value: 42}", "contains", {"value": "42", "fold": False}),
        ("{type: icontains, value: A}", "contains", {"value": "A", "fold": True}),
        ("{type: equals, value: 1.0}", "equals", {"value": "1.0", "trim": None}),
        (
            "{type: equals, value: {a: 1, b: [true, null]}}",
            "equals",
            {"value": '{"a": 1, "b": [true, null]}'},
        ),
        (
            "{type: contains-any, value: [true, 2.50, x]}",
            "contains-any",
            {"values": ["true", "2.5", "x"]},
        ),
        ("{type: equals, value: [1], config: {mode: json}}", "equals-json", {"value": [1]}),
        ("{type: regex, value: 'a', config: {flags: i}}", "regex", {"dialect": "python"}),
        ("{type: word-count, value: 3}", "word-count", {"min": 3, "max": 3}),
        ("{type: is-json}", "is-json", {"schema": None}),
        (
            "{type: contains-json, value: {type: object}}",
            "contains-json",
            {"schema": {"type": "object"}},
        ),
        ("{type: levenshtein, value: a}", "levenshtein", {"threshold": 5}),
        ("{type: rouge-n, value: a, threshold: null}", "rouge-n", {"threshold": 0.75}),
        ("{type: tokens, threshold: 10}", "tokens", {"threshold": 10}),
        ("{type: llm_judge, config: {rubric: kind}}", "llm-grader", {"votes": 1}),
        ("{type: llm_judge, config: {rubric: [kind]}}", "rubrics", {"aggregation": "mean"}),
        ("{type: similar, value: a}", "similar", {"threshold": 0.8}),
    ],
    ids=lambda value: value if isinstance(value, str) and "{" in value else "",
)
def test_an_assertion_becomes_a_check(
    tmp_path: Path, written: str, check: str, params: dict[str, Any]
) -> None:
    found = assertion(tmp_path, written)

    assert found.check == check
    assert {key: found.params[key] for key in params} == params
    assert found.block == "x"


@pytest.mark.parametrize(
    ("written", "name", "weight", "negate"),
    [
        ("{type: contains, value: word}", "contains-word", 1.0, False),
        ("{type: not-contains, value: word, weight: 0}", "not-contains-word", 0.0, True),
        ("{type: contains-any, value: [a, b, c]}", "contains-any-3", 1.0, False),
        ("{type: is-json, metric: valid}", "is-json", 1.0, False),
        ("{type: not-is-json}", "not-is-json", 1.0, True),
    ],
)
def test_names_weights_and_negation(
    tmp_path: Path, written: str, name: str, weight: float, negate: bool
) -> None:
    found = assertion(tmp_path, written)

    assert (found.name, found.weight, found.negate) == (name, weight, negate)


# What an assertion of each type has to say; all other types need a `value`.
NEEDED = {
    "is-json": "",
    "contains-json": "",
    "cost": "threshold: 1",
    "latency": "threshold: 1",
    "tokens": "threshold: 1",
    "word-count": "value: 1",
    "contains-any": "value: [a]",
    "contains-all": "value: [a]",
    "icontains-any": "value: [a]",
    "icontains-all": "value: [a]",
    "llm_judge": "config: {rubric: a}",
    "human": "question: a, labels: [yes, no], expected: yes",
    "python": "callable: 'math:sqrt'",
}


@pytest.mark.parametrize("kind", assertion_types(Dialect.WORKFLOW).values(), ids=lambda k: k.name)
def test_null_of_each_optional_key_of_an_assertion_is_its_absence(
    tmp_path: Path, kind: AssertionType
) -> None:
    needed = NEEDED.get(kind.name, "value: a")
    absent = assertion(tmp_path, f"{{type: {kind.name}, {needed}}}")
    for key in kind.shape.__optional_keys__:
        if f"{key}:" not in needed:
            written = f"{{type: {kind.name}, {needed + ', ' if needed else ''}{key}: null}}"
            assert assertion(tmp_path, written) == absent


def test_null_of_a_key_of_config_is_its_absence(tmp_path: Path) -> None:
    absent = assertion(tmp_path, "{type: regex, value: a}")
    null = assertion(tmp_path, "{type: regex, value: a, config: {flags: null}}")

    assert null == absent


def test_the_evalcore_section_becomes_the_policy(tmp_path: Path) -> None:
    section = """
evalcore:
  iterations: 3
  reducer: at_least_k
  k: 2
  gates: [errors, {gate: pass_rate, threshold: 0.5, perVariant: true}]
  errors: exclude
  max_error_share: 0.25
  limits: {concurrency: 4, timeout_s: 1.5}
  tags: [nightly]
  variants: [{id: base}, {id: other, config: {model: m}, tags: [t]}]
  baseline: base
"""
    definition = suite(tmp_path, section).definition
    policy = definition.policy

    assert (policy.iterations, policy.reducer, policy.k) == (3, Reducer.AT_LEAST_K, 2)
    assert policy.gates == (
        GateSpec("errors"),
        GateSpec("pass_rate", {"threshold": 0.5, "per_variant": True}),
    )
    assert (policy.errors, policy.max_error_share) == (ErrorPolicy.EXCLUDE, 0.25)
    assert (definition.limits.concurrency, definition.limits.timeout_s) == (4, 1.5)
    assert (definition.tags, definition.baseline) == (("nightly",), "base")
    assert definition.variants == (
        Variant("base"),
        Variant("other", config={"model": "m"}, tags=("t",)),
    )


@pytest.mark.parametrize("policy", ["fail", "exclude", "zero"])
def test_the_errors_gate_is_added_unless_errors_score_zero(tmp_path: Path, policy: str) -> None:
    section = f"evalcore: {{errors: {policy}, max_error_share: 0.1}}"
    gates = [gate.gate for gate in suite(tmp_path, section).definition.policy.gates]

    assert gates == (["threshold"] if policy == "zero" else ["threshold", "errors"])


def test_the_callers_options_win(tmp_path: Path) -> None:
    section = "evalcore: {iterations: 3, gates: [errors], limits: {concurrency: 4}}"
    gate = GateSpec("pass_rate", {"threshold": 0.5, "per_variant": False})
    definition = suite(tmp_path, section, iterations=5, gates=(gate,), concurrency=9).definition

    assert definition.policy.iterations == 5
    assert definition.policy.gates == (gate, GateSpec("errors"))
    assert definition.limits.concurrency == 9


def test_the_definition_holds_what_the_workflow_does(tmp_path: Path) -> None:
    text = """
blocks: {x: {type: llm, soul_ref: s, description: For people}}
souls: {s: {id: s, name: Sam, role: Writer, kind: soul, avatar_color: red, model_name: m}}
version: "1.0"
x-notes: for people
evalcore: {tags: [t]}
"""
    found = suite(tmp_path, text)

    assert found.definition.targets["workflow"].options == {
        "definition": {
            "blocks": {"x": {"type": "llm", "soul_ref": "s"}},
            "souls": {"s": {"id": "s", "model_name": "m"}},
        }
    }


@pytest.mark.parametrize("block", ["x", "route.left"])
def test_blocks_and_their_exits_may_be_expected(tmp_path: Path, block: str) -> None:
    text = f"""\
        blocks: {{x: {{type: llm}}, route: {{type: dispatch, exits: [{{id: left}}]}}}}
        eval:
          cases:
            - {{id: a, fixtures: {{{block}: y}}, expected: {{{block}: [{{type: is-json}}]}}}}
        """
    assert list(cases_of(tmp_path, text)) == ["a"]


def test_without_blocks_any_id_may_be_expected(tmp_path: Path) -> None:
    assert len(suite(tmp_path).cases) == 1


OPTIONAL = [
    key
    for key, schema in adapter(block_class("code")).json_schema()["properties"].items()
    if {"type": "null"} in schema.get("anyOf", ()) and key != "code"
]


@pytest.mark.parametrize("key", OPTIONAL)
@pytest.mark.parametrize("given", ["fixtures: {x: '1'}, ", ""], ids=["given", "executed"])
def test_what_may_be_empty_where_blocks_run_may_be_empty_where_they_are_given(
    tmp_path: Path, key: str, given: str
) -> None:
    text = f"""
        blocks: {{x: {{type: code, code: "def main(data): return 1", {key}: null}}}}
        workflow: {{name: w, entry: x}}
        eval: {{cases: [{{id: a, {given}expected: {{x: [{{type: is-json}}]}}}}]}}
        """
    assert len(load_text(tmp_path, text).cases) == 1
