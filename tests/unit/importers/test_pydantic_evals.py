"""Datasets of pydantic-evals as suites: the same verdicts, and notes on the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from evalcore.errors import LoadError
from tests.support.conversions import converted, written
from tests.support.shell import evalcore

TASKS = """
CAPITALS = {"capital of France": "Paris", "capital of Spain": "Madrid!"}
ORDERS = {"2 teas": {"item": "tea", "count": 2}, "1 cake": {"item": "cake", "count": 1}}


def capital(input):
    return CAPITALS.get(input, input.upper())


def order(input):
    return ORDERS.get(input["text"], ["a", 1])
"""
# What pydantic-evals 2.62.0 said of these tasks: assertions that passed, of all.
SAID = {
    "capitals": {"france": (4, 4), "spain": (2, 4), "case-3": (3, 3)},
    "orders": {"two": (3, 4), "one": (2, 3), "list": (3, 4)},
}


def test_evaluators_say_what_they_said_in_pydantic_evals(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    suites = [
        written("pydantic-evals", f"{name}.yaml", tmp_path, target=f"tasks:{name[:-1]}")
        for name in SAID
    ]
    ended = evalcore("run", *suites, "--json", store=tmp_path / "store")
    for report in ended.lines:
        counts = {}
        for case in report["cases"]:
            outcomes = [each["outcome"] for each in case["items"][0]["assertions"]]
            counts[case["id"]] = (outcomes.count("passed"), len(outcomes))
            assert case["passed"] == (outcomes.count("passed") == len(outcomes))
        assert counts == SAID[report["suite"]]


def test_judges_tools_and_evaluators_without_a_counterpart(tmp_path: Path) -> None:
    suite, notes = converted("pydantic-evals", "tone.json", tmp_path)
    content = yaml.safe_load(suite.read_text("utf-8"))
    assert [(each["name"], each["provider"], each["model"]) for each in content["targets"][1:]] == [
        ("judge", "anthropic", "claude-sonnet"),
        ("judge-2", "openai", "gpt-5.2"),
    ]
    (case,) = content["cases"]
    assert case["assertions"] == [
        {"type": "llm_judge", "criteria": "Stays calm"},
        {
            "type": "llm_judge",
            "criteria": "Offers help\n1. Look for an offer\n2. Grade it",
            "config": {"judge": "judge-2"},
        },
        {"type": "icontains", "value": "USELESS"},
        {"type": "execution-metrics", "max_tool_calls": 3, "threshold": 1},
    ]
    text = "\n".join(notes)
    assert "cases[0].evaluators[3]: HasMatchingSpan: an evaluator of your own" in text
    assert "cases[1].evaluators[0]: Politeness: an evaluator of your own" in text
    assert "cases[1]: the case is left out: nothing that it checks has a counterpart" in text
    assert "report_evaluators: analyses of a whole report have no counterpart" in text


def test_mistakes_are_told_with_their_lines(tmp_path: Path) -> None:
    dataset = tmp_path / "d.yaml"
    dataset.write_text("cases:\n- inputs: a\n- name: b\n")
    with pytest.raises(LoadError, match=r"d\.yaml:3: cases\[1\]\.inputs: is required"):
        converted(None, "d.yaml", tmp_path)
