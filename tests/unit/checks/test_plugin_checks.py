from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.trust.imports import ImportPolicy
from tests.unit.checks.checking import (
    ERROR,
    FAILED,
    PASSED,
    assertion,
    context,
    result,
)

Ask = Callable[..., AssertionResult]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Grade an output with a plug-in file of the given text."""

    def ask(
        source: str, *, returns: str = "bool", output: str = "text", **options: Any
    ) -> AssertionResult:
        path = tmp_path / "plug_in.py"
        path.write_text(source)
        params = {
            "source": str(path),
            "returns": returns,
            "config": options.pop("config", None),
            "id": "mine",
            "params": options.pop("params", None),
        }
        within = context(tmp_path, plugin_timeout_s=options.pop("timeout_s", 30.0))
        return result(assertion("custom", params, **options), output, within=within)

    return ask


def get_assert(body: str) -> str:
    return f"def get_assert(output, context):\n    {body}\n"


def test_a_plug_in_is_told_the_output_and_the_context(ask: Ask) -> None:
    body = "return {'passed': True, 'score': 1, 'reason': repr((output, context))}"
    ended = ask(get_assert(body), returns="grading_result", output="é\ud800", config={"min": 2})
    assert ended.outcome is PASSED
    for told in ("'é\\ud800'", "'config': {'min': 2}", "'case_id': 'case-1'", "'id': 'mine'"):
        assert told in ended.message


@pytest.mark.parametrize(
    ("body", "returns", "outcome", "score"),
    [
        ("return True", "bool", PASSED, 1.0),
        ("return False", "bool", FAILED, 0.0),
        (
            "return {'passed': False, 'score': 0.25, 'reason': 'meh'}",
            "grading_result",
            FAILED,
            0.25,
        ),
        ("return {'passed': True, 'score': 0.5, 'reason': ''}", "grading_result", PASSED, 0.5),
    ],
)
def test_what_a_plug_in_returns_as_declared_counts(
    ask: Ask, body: str, returns: str, outcome: Outcome, score: float
) -> None:
    ended = ask(get_assert(body), returns=returns)
    assert (ended.outcome, ended.score) == (outcome, score)


NOT_AS_DECLARED = {
    "a number for a bool": ("return 1", "bool"),
    "nothing for a bool": ("pass", "bool"),
    "a bool for a mapping": ("return True", "grading_result"),
    "no score": ("return {'passed': True, 'reason': ''}", "grading_result"),
    "a score beyond one": ("return dict(passed=True, score=1.5, reason='')", "grading_result"),
    "no number": ("return dict(passed=True, score=float('nan'), reason='')", "grading_result"),
    "not JSON": ("return object()", "bool"),
}


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize(("body", "returns"), NOT_AS_DECLARED.values(), ids=NOT_AS_DECLARED)
def test_anything_else_is_an_error(ask: Ask, body: str, returns: str, negate: bool) -> None:
    ended = ask(get_assert(body), returns=returns, negate=negate)
    assert (ended.outcome, ended.score) == (ERROR, 0.0)


BUDGET = {"type": "object", "properties": {"budget": {"type": "number"}}, "required": ["budget"]}
CONFIGS = {
    "nothing": (None, "$: 'budget' is a required property"),
    "a text": ({"budget": "lots"}, "$.budget: 'lots' is not of type 'number'"),
}


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize(("config", "expected"), CONFIGS.values(), ids=CONFIGS)
def test_a_config_that_breaks_the_params_is_an_error(
    ask: Ask, config: Any, expected: str, negate: bool
) -> None:
    ended = ask(get_assert("return True"), config=config, params=BUDGET, negate=negate)
    assert (ended.outcome, ended.score) == (ERROR, 0.0)
    assert f"the config of the plug-in 'mine' breaks its params: {expected}" in ended.message


def test_a_config_that_keeps_the_params_reaches_the_plug_in(ask: Ask) -> None:
    body = "return context['config']['budget'] == 2.5"
    assert ask(get_assert(body), config={"budget": 2.5}, params=BUDGET).outcome is PASSED


@pytest.mark.parametrize(("key", "value"), [("pass", True), ("pass_", True), ("pass", False)])
def test_the_key_of_promptfoo_is_understood(ask: Ask, key: str, value: bool) -> None:
    body = f"return {{{key!r}: {value}, 'score': 0.5, 'reason': 'so'}}"
    ended = ask(get_assert(body), returns="grading_result")
    assert ended.outcome is (PASSED if value else FAILED)


def test_a_result_with_both_keys_is_an_error(ask: Ask) -> None:
    body = "return {'pass': True, 'passed': False, 'score': 0.5, 'reason': 'so'}"
    ended = ask(get_assert(body), returns="grading_result")
    assert ended.outcome is ERROR
    assert "'passed' and 'pass'" in ended.message


CRASHES = {
    "an exception": (get_assert("raise ValueError('boom')"), "ValueError: boom"),
    "a syntax error": ("def get_assert(:", "SyntaxError: invalid syntax"),
    "no function": ("x = 1", "has no function get_assert"),
    "an exit": (get_assert("import os; os._exit(3)"), "exit code 3"),
}


@pytest.mark.parametrize(("source", "expected"), CRASHES.values(), ids=CRASHES)
def test_a_crash_is_an_error_with_the_last_words(ask: Ask, source: str, expected: str) -> None:
    ended = ask(source)
    assert ended.outcome is ERROR
    assert expected in ended.message
    assert "\n" not in ended.message


def test_a_plug_in_that_does_not_end_is_an_error(ask: Ask) -> None:
    ended = ask(get_assert("import time; time.sleep(60)"), timeout_s=0.5)
    assert ended.outcome is ERROR
    assert "within 0.5 s" in ended.message


NOISY = {
    "print": "print('{\"returned\": true}')",
    "a descriptor": "import os; os.write(1, b'{\"returned\": true}')",
    "at exit": "import atexit; atexit.register(print, 'noise')",
    "a thread": "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()",
}


@pytest.mark.parametrize("statement", NOISY.values(), ids=NOISY)
def test_what_a_plug_in_prints_is_not_its_answer(ask: Ask, statement: str) -> None:
    ended = ask(f"{statement}\n" + get_assert(f"{statement}; return False"))
    assert ended.outcome is FAILED


def python_result(folder: Path, body: str, **options: Any) -> AssertionResult:
    (folder / "my_checks.py").write_text(
        f"import asyncio, sys, time\ndef check(output, context):\n    {body}\n"
        f"async def later(output, context):\n    {body}\n"
    )
    params = {"callable": options.pop("callable", "my_checks:check"), "config": {"word": "refund"}}
    within = context(
        folder,
        plugin_timeout_s=options.pop("timeout_s", 30.0),
        imports=ImportPolicy(roots=(folder,)),
    )
    params.update(options)
    return result(assertion("python", params), "a refund", within=within)


@pytest.mark.parametrize("function", ["my_checks:check", "my_checks:later"])
@pytest.mark.parametrize(
    ("body", "outcome", "score"),
    [
        ("return context['config']['word'] in output", PASSED, 1.0),
        ("return context['case_id'] == 'other'", FAILED, 0.0),
        ("return 1", PASSED, 1.0),
        ("return 0.5", FAILED, 0.5),
        ("return {'passed': True, 'score': 0.5, 'reason': 'fine'}", PASSED, 0.5),
        ("return None", ERROR, 0.0),
        ("return 1.5", ERROR, 0.0),
        ("return float('nan')", ERROR, 0.0),
        ("return 'yes'", ERROR, 0.0),
        ("raise KeyError('x')", ERROR, 0.0),
        ("sys.exit(0)", ERROR, 0.0),
    ],
)
def test_a_callable_of_either_kind_is_asked(
    tmp_path: Path, function: str, body: str, outcome: Outcome, score: float
) -> None:
    ended = python_result(tmp_path, body, callable=function)
    assert (ended.outcome, ended.score) == (outcome, score)


def test_a_number_passes_from_the_threshold_on(tmp_path: Path) -> None:
    assert python_result(tmp_path, "return 0.5", threshold=0.5).outcome is PASSED


def test_a_callable_that_does_not_return_is_an_error(tmp_path: Path) -> None:
    ended = python_result(tmp_path, "time.sleep(60)", timeout_s=0.1)
    assert ended.outcome is ERROR
    assert ended.message == "my_checks:check did not return within 0.1 s"


def test_a_callable_that_is_interrupted_is_an_error_at_once(tmp_path: Path) -> None:
    ended = python_result(tmp_path, "raise KeyboardInterrupt", timeout_s=60)
    assert (ended.outcome, ended.message) == (ERROR, "my_checks:check failed: KeyboardInterrupt")
