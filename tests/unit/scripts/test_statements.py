"""What statements give, and what they see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from evalcore.errors import UsageError
from evalcore.expressions.engine import ExpressionError
from evalcore.providers.chat import ChatModel
from evalcore.scripts.iteration import Iteration, ToolError
from evalcore.scripts.mcp import McpServers
from evalcore.scripts.program import Layer, LevelReader, read_levels
from evalcore.scripts.statements import RaisingCollector, run_body
from evalcore.scripts.tools import ToolReader
from evalcore.trust.imports import ImportPolicy


def no_model(name: str) -> ChatModel:
    raise AssertionError(name)


def result_of(test: str, *layers: str, iteration: int = 0) -> Any:
    """Return what a test gives inside of layers, the outermost first."""
    mistakes = RaisingCollector()
    reader = LevelReader(ToolReader(mistakes, {}, None), mistakes)
    raw = tuple(Layer((), yaml.safe_load(layer), chain=False) for layer in layers or ("{}",))
    made = reader.test(yaml.safe_load(test), (), read_levels(raw, reader))
    assert made is not None
    run = Iteration(ImportPolicy(), no_model, McpServers({}, {}).call)
    return asyncio.run(run_body(made.body, made.enter({"env": {}}, iteration), run))


RESULTS: dict[str, tuple[str, Any]] = {
    "a value": ("{do: {eval: {a: [1, '${1 + 1}']}}}", {"a": [1, 2]}),
    "no statement": ("{do: []}", None),
    "no statement after one": ("{do: [{eval: 1}, {if: true, then: []}]}", None),
    "the last of a list": ("{do: [{eval: 1}, {eval: 2}]}", 2),
    "the one before": ("{do: [{eval: 1}, {eval: '${_ + 1}'}]}", 2),
    "nothing before the first": ("{do: {eval: '${_ is None}'}}", True),
    "stored": ("{do: [{eval: 1, store_as: x}, {eval: 2}, {eval: '${x}'}]}", 1),
    "stored in a branch": (
        "{do: [{if: true, then: {eval: 1, store_as: x}}, {eval: 5}, {eval: '${x}'}]}",
        1,
    ),
    "the text False is true": ("{do: {if: 'False', then: {eval: 1}, else: {eval: 2}}}", 1),
    "false without an else": ("{do: {if: '${0}', then: {eval: 1}}}", None),
    "a list": ("{do: {for_each: [1, 2], do: {eval: '${_ * 2}'}}}", [2, 4]),
    "a range": ("{do: {for_each: '${range(3)}', do: {eval: '${_}'}}}", [0, 1, 2]),
    "a tuple": ("{do: {for_each: '${(1, 2)}', do: {eval: '${_}'}}}", [1, 2]),
    "a set": ("{do: {for_each: '${set([2, 1])}', do: {eval: '${_}'}}}", [1, 2]),
    "a mapping": (
        "{do: {for_each: {a: 1, b: 2}, do: {eval: '${key}${_}'}}}",
        {"a": "a1", "b": "b2"},
    ),
    "a text": ("{do: {for_each: abc, do: {eval: '${_}!'}}}", "abc!"),
    "null": ("{do: {for_each: null, do: {eval: '${_ is None}'}}}", True),
    "an empty list": ("{do: {for_each: [], do: {eval: 1}}}", []),
    "an empty mapping": ("{do: {for_each: {}, do: {eval: 1}}}", {}),
    "a case": ("{do: {match: a, matchers: [{case: a, then: {eval: 1}}]}}", 1),
    "a case as it is written": (
        "{do: {match: '${5}', matchers: [{case: '5', then: {eval: 1}}]}}",
        1,
    ),
    "the first that fits": (
        "{do: {match: ab, matchers: [{pattern: b, then: {eval: 1}}, {case: ab, then: {eval: 2}}]}}",
        1,
    ),
    "groups": (
        "{do: {match: 'score 7', matchers: [{pattern: '(s)\\w+ (\\d)', "
        "then: {eval: '${_match_groups}'}}]}}",
        ["s", "7"],
    ),
    "not trimmed": ("{do: {match: ' a', matchers: [{case: a, then: {eval: 1}}]}}", None),
    "trimmed": ("{do: {match: ' a ', trim: true, matchers: [{case: a, then: {eval: 1}}]}}", 1),
    "the default": ("{do: {match: z, matchers: [], default: {eval: 3}}}", 3),
    "a value before a match stays": (
        "{do: [{eval: 4}, {match: a, matchers: [{case: a, then: {eval: '${_}'}}]}]}",
        4,
    ),
}


@pytest.mark.parametrize(("test", "expected"), RESULTS.values(), ids=RESULTS)
def test_a_test_gives(test: str, expected: Any) -> None:
    assert result_of(test) == expected


TOOLS = """
tools:
  - {name: half, input: [{name: x, type: float}], do: {eval: '${x / 2}'}}
  - {name: sees, do: {eval: '${_ + outer}'}}
  - {name: stores, do: {eval: 1, store_as: inner}}
  - {name: breaks, do: {eval: '${1 / 0}'}}
  - {name: outer_one, tools: [{name: half, do: {eval: local}}], do: {call: half}}
  - {name: forever, do: {call: forever}}
  - name: kinds
    input:
      - {name: n, type: int, default: 1}
      - {name: s, type: str, default: x}
      - {name: l, type: 'list[int]', default: []}
      - {name: d, type: 'dict[str, float]', default: {}}
      - {name: m, type: 'literal:a|b', default: a}
    do: {eval: '${[n, s, l, d, m]}'}
"""
CALLS: dict[str, tuple[str, Any]] = {
    "a parameter": ("{do: {call: half, params: {x: '3'}}}", 1.5),
    "the caller's scope": ("{data: {outer: 1}, do: [{eval: 2}, {call: sees}]}", 3),
    "its own tools first": ("{do: {call: outer_one}}", "local"),
    "caught by its name": ("{do: {call: breaks, catch: ZeroDivisionError}}", None),
    "caught by a base's name": ("{do: {call: breaks, catch: [ArithmeticError]}}", None),
    "a wrong parameter, caught by the base of pydantic's error": (
        "{do: {call: half, params: {x: many}, catch: [ValueError]}}",
        None,
    ),
    "caught by a star": ("{do: [{call: breaks, catch: '*'}, {eval: '${_ is None}'}]}", True),
    "caught by all": ("{do: [{call: breaks, catch: all}, {eval: '${_ is None}'}]}", True),
    "caught and stored": (
        "{do: [{call: breaks, catch: all, store_as: x}, {eval: '${x is None}'}]}",
        True,
    ),
    "defaults": ("{do: {call: kinds}}", [1, "x", [], {}, "a"]),
    "coerced": (
        "{do: {call: kinds, params: {n: '5', s: 7, l: ['1'], d: {a: 1}, m: b}}}",
        [5, "7", [1], {"a": 1.0}, "b"],
    ),
}


@pytest.mark.parametrize(("test", "expected"), CALLS.values(), ids=CALLS)
def test_a_call_gives(test: str, expected: Any) -> None:
    assert result_of(test, TOOLS) == expected


FAILURES: dict[str, tuple[str, str]] = {
    "a tool's expression": ("{do: {call: breaks}}", "ZeroDivisionError"),
    "not caught": ("{do: {call: breaks, catch: ValueError}}", "ZeroDivisionError"),
    "a missing parameter": ("{do: {call: half}}", "ValidationError"),
    "a wrong parameter": ("{do: {call: half, params: {x: many}}}", "ValidationError"),
    "a tool that calls itself": ("{do: {call: forever}}", "RecursionError"),
    "what a tool stored": ("{do: [{call: stores}, {eval: '${inner}'}]}", "NameError"),
    "what a round stored": (
        "{do: [{for_each: [1], do: {eval: 1, store_as: x}}, {eval: '${x}'}]}",
        "NameError",
    ),
    "an expression in a round": (
        "{do: {for_each: [1, 0], do: {eval: '${1 / _}'}}}",
        "ZeroDivisionError",
    ),
    "too many rounds": ("{do: {for_each: '${range(100001)}', do: {eval: 1}}}", "LimitError"),
    "results of rounds that are too large": (
        "{do: {for_each: '${range(1000)}', do: {eval: \"${'a' * 1000000}\"}}}",
        "LimitError",
    ),
    "a list that grows too large": (
        "{data: {xs: []}, do: {for_each: '${range(1000)}', "
        "do: {eval: \"${xs.append('a' * 100000)}\"}}}",
        "LimitError",
    ),
    "groups after the match": (
        "{do: [{match: a, matchers: [{pattern: a, then: {eval: 1}}]}, {eval: '${_match_groups}'}]}",
        "NameError",
    ),
}


def test_many_small_results_of_rounds_are_kept() -> None:
    test = "{do: [{for_each: '${range(20000)}', do: {eval: '${[_, [_]]}'}}, {eval: '${_[-1]}'}]}"

    assert result_of(test) == [19999, [19999]]


@pytest.mark.parametrize(("test", "kind"), FAILURES.values(), ids=FAILURES)
def test_a_test_fails_with(test: str, kind: str) -> None:
    with pytest.raises((ExpressionError, ToolError)) as raised:
        result_of(test, TOOLS)

    assert isinstance(raised.value, ExpressionError | ToolError)
    assert raised.value.kind == kind


def test_inner_data_goes_before_outer_data_and_sees_it() -> None:
    layers = ("{data: {a: 1, b: '${a}'}}", "{data: {a: 5, c: '${a + b}'}}")

    assert result_of("{data: {a: '${a * 2}'}, do: {eval: '${[a, b, c]}'}}", *layers) == [10, 1, 6]


def test_a_key_of_data_does_not_see_those_below_it() -> None:
    with pytest.raises(ExpressionError):
        result_of("{data: {a: '${b}', b: 1}, do: {eval: 1}}")


def test_data_is_made_anew_for_each_iteration() -> None:
    mistakes = RaisingCollector()
    reader = LevelReader(ToolReader(mistakes, {}, None), mistakes)
    levels = read_levels((Layer((), {"data": {"xs": [1]}}, chain=False),), reader)
    test = reader.test({"do": [{"eval": "${xs.append(2)}"}, {"eval": "${xs}"}]}, (), levels)
    assert test is not None
    run = Iteration(ImportPolicy(), no_model, McpServers({}, {}).call)

    for iteration in range(2):
        assert asyncio.run(run_body(test.body, test.enter({}, iteration), run)) == [1, 2]


def test_what_a_loader_would_refuse_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no tool 'nothing'"):
        result_of("{do: {call: nothing}}")
