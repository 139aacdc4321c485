from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalcore.errors import TargetError, UsageError
from evalcore.execution.item import run_inline
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.targets.registry import KINDS, build, merged_options, options_model
from evalcore.targets.work import Work, messages_of, prompt_of
from evalcore.trust.imports import ImportPolicy
from tests.support.target_calls import merge_options


def work_for(case: Case) -> Work:
    messages = messages_of(case.input)
    return Work(case, DEFAULT_VARIANT, 0, 0, prompt_of(messages), messages, Path(), ImportPolicy())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_schema_with_descriptions(kind: str) -> None:
    schema = options_model(kind).model_json_schema()
    assert schema["additionalProperties"] is False
    assert all("description" in field for field in schema["properties"].values())


def test_misspelt_kind_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"'ecoh'\. Did you mean 'echo'\?.*mock"):
        options_model("ecoh")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mock", {}),
        ("mock", {"response": "x", "latency_ms": -1}),
        ("mock", {"response": "x", "latency_ms": float("nan")}),
        ("mock", {"response": "x", "colour": "red"}),
        ("echo", {"response": "x"}),
        ("python", {}),
        ("command", {"command": []}),
        ("command", {"command": ""}),
        ("command", {"command": ["x"], "timeout": 0}),
        ("command", {"command": {"a": 1}}),
    ],
)
def test_options_that_do_not_fit_are_refused(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        build(Target("t", kind, options))


def test_variant_is_laid_over_the_options() -> None:
    target = Target("t", "mock", {"response": "a", "latency_ms": 5})
    merged = merge_options(target, Variant("v", config={"response": "b"}))
    assert merged.model_dump() == {"response": "b", "latency_ms": 5}


def test_variant_that_does_not_fit_is_refused() -> None:
    target = Target("t", "mock", {"response": "a"})
    with pytest.raises(ValidationError, match="temperature"):
        merge_options(target, Variant("v", config={"temperature": 1}))


def test_free_configuration_of_a_variant_reaches_a_function() -> None:
    target = Target("t", "python", {"callable": "a:b", "config": {"k": 1, "l": 2}})
    merged = merge_options(target, Variant("v", config={"l": 3, "callable": "c:d"}))
    assert merged.model_dump(exclude_unset=True) == {"callable": "c:d", "config": {"k": 1, "l": 3}}


def answer_inline(target: Target, case: Case) -> Evidence:
    runnable = build(target)
    assert not runnable.waits(case)
    return run_inline(runnable.answer(work_for(case)))


def test_mock_answers_at_once_with_its_response() -> None:
    evidence = answer_inline(Target("t", "mock", {"response": "{{input}}"}), Case("c", "hi"))
    assert (evidence.output, evidence.metrics.latency_ms) == ("{{input}}", 0.0)


def test_mock_with_a_latency_has_to_be_awaited() -> None:
    target = build(Target("t", "mock", {"response": "r", "latency_ms": 1}))
    work = work_for(Case("c", "hi"))
    assert target.waits(work.case)
    assert asyncio.run(target.answer(work)).metrics.latency_ms == 1


def test_echo_answers_with_the_prompt() -> None:
    evidence = answer_inline(Target("t", "echo"), Case("c", {"q": 1}))
    assert evidence.output == '{"q": 1}'


def test_fixture_answers_with_the_fixture() -> None:
    given = Evidence("given")
    assert answer_inline(Target("t", "fixture"), Case("c", "hi", fixture=given)) is given


def test_case_without_a_fixture_is_an_error() -> None:
    with pytest.raises(TargetError, match="case 'c' has no fixture") as caught:
        answer_inline(Target("t", "fixture"), Case("c", "hi"))
    assert caught.value.kind == "fixture"


THOUGHT = "<think>Berlin?</think>\n\nRome"


@pytest.mark.parametrize(
    ("options", "config", "output"),
    [
        ({}, {}, THOUGHT),
        ({"reasoning": "keep"}, {}, THOUGHT),
        ({"reasoning": "strip"}, {}, "Rome"),
        ({}, {"reasoning": "strip"}, "Rome"),
        ({"reasoning": "strip"}, {"reasoning": "keep"}, THOUGHT),
    ],
    ids=["by default", "keep", "strip", "strip of a variant", "keep of a variant"],
)
def test_reasoning_is_stripped_of_answers_that_are_to_be_without(
    options: dict[str, Any], config: dict[str, Any], output: str
) -> None:
    runnable = build(Target("t", "echo", options), Variant("v", config=config))
    evidence = run_inline(runnable.answer(work_for(Case("c", THOUGHT))))
    kept = {} if output == THOUGHT else {"reasoning": "Berlin?"}
    assert (evidence.output, evidence.details) == (output, kept)


def test_a_fallback_strips_its_own_reasoning() -> None:
    fallback = {"name": "other", "kind": "echo", "options": {"reasoning": "strip"}}
    runnable = build(Target("t", "fixture", {"fallback_targets": [fallback]}))
    assert run_inline(runnable.answer(work_for(Case("c", THOUGHT)))).output == "Rome"


def test_other_keys_of_a_variant_are_the_config_of_a_flow() -> None:
    target = Target("t", "flow", {"callable": "m:f", "config": {"tone": "dry", "size": 1}})
    variant = Variant("v", config={"tone": "kind", "model": "m2"})
    options = merged_options(target, variant)
    assert (options["config"], options["model"]) == ({"tone": "kind", "size": 1}, "m2")
