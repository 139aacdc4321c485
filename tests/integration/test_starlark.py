"""Starlark scripts in processes of their own: what they give and call, how they are stopped."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from evalcore.expressions.budget import Budget
from evalcore.expressions.failure import ExpressionError, ExpressionSyntaxError
from evalcore.expressions.starlark import check_starlark, run_starlark

pytestmark = pytest.mark.multiprocess

RESULTS: dict[str, tuple[str, Any]] = {
    "variable": ("result = 0.5", 0.5),
    "none": ("result = None\ndef run():\n  return 1\n", None),
    "function": ("def run():\n  t = 0\n  for n in nums:\n    t += n\n  return t / 10\n", 0.6),
    "variable before function": ("result = 0.2\ndef run():\n  return 0.9\n", 0.2),
    "helper": ("def half(v):\n  return v / 2\nresult = half(0.8)\n", 0.4),
    "previous result": ("result = _ * 2", 1.2),
    "keys that are no texts": ("result = {1: (1, 2), 'x': None}", {1: [1, 2], "x": None}),
    "set of the scope": ("result = sorted(chosen)", [1, 2]),
    "statements at the top": (
        "result = []\nfor n in nums:\n  if n > 1:\n    result.append(n)",
        [2, 3],
    ),
    "formatted text": ("result = f'{name}!'", "World!"),
    "functions that Starlark lacks": ("result = sum(nums) + round(2.4) + pow(2, 3)", 16),
    "parse_json": ("result = parse_json(raw)['a'][1]", 2),
    "print_json": ("result = print_json({'a': [1, 'ä']})", '{"a": [1, "ä"]}'),
    "hex and oct": ("result = hex(255) + oct(8) + repr('x')", '0xff0o10"x"'),
    "get": ("result = get(get({}, 'x', {}), 'y', 7)", 7),
    "struct": ("result = struct(a = 1)", {"a": 1}),
}
SCOPE: dict[str, Any] = {
    "nums": [1, 2, 3],
    "_": 0.6,
    "chosen": {2, 1},
    "name": "World",
    "raw": '{"a": [1, 2]}',
    "opaque": object(),
    "_private": 1,
}
FAILURES = {
    "neither": ("x = 1", "ValueError", "no variable 'result'"),
    "division": ("\nresult = 1 / 0", "ZeroDivisionError", "line 2"),
    "unknown name": ("result = nope", "NameError", "nope"),
    "missing key": ("result = {}['a']", "KeyError", "a"),
    "index": ("result = [1][4]", "IndexError", "4"),
    "types": ("result = 'a' + 1", "TypeError", "string"),
    "own failure": ("fail('no good')", "ValueError", "no good"),
    "result that is a function": ("def f():\n  return 1\nresult = f", "TypeError", "function"),
    "what JSON does not know": ("result = opaque", "TypeError", "'opaque' holds a value"),
    "private name": ("result = _private", "NameError", "_private"),
    "file": ("result = open('/etc/passwd')", "NameError", "open"),
    "import": ("result = __import__('os')", "NameError", "__import__"),
    "dunder": ("result = ''.__class__", "AttributeError", "__class__"),
    "dunder of a function": ("result = sum.__self__", "AttributeError", "__self__"),
    "dunder by getattr": ("result = getattr('', '__class__')", "TypeError", "__class__"),
    "recursion": ("def f(n):\n  return f(n + 1)\nresult = f(1)", "RecursionError", "calls"),
    "endless loop": (
        "def f():\n  for a in range(1 << 30):\n    for b in range(1 << 30):\n      pass\nf()",
        "LimitError",
        "steps",
    ),
    "text that doubles": (
        "def f():\n  x = 'ab'\n  for i in range(64):\n    x = x + x\n  return len(x)\nresult = f()",
        "LimitError",
        "memory",
    ),
    "list that grows": (
        "def f():\n  x = []\n  for i in range(1 << 30):\n    x.append('a' * 1000)\nresult = f()",
        "LimitError",
        "memory",
    ),
    "range as a list": ("result = list(range(1 << 30))", "LimitError", "memory"),
    "result that is too large": ("result = 'a' * 20000000", "LimitError", "larger than"),
    "power": ("result = pow(10, 1 << 30)", "ValueError", "too large"),
}


@pytest.mark.parametrize(("source", "result"), RESULTS.values(), ids=RESULTS)
def test_a_script_gives_its_result(source: str, result: Any) -> None:
    assert run_starlark(source, SCOPE) == result


@pytest.mark.parametrize(("source", "kind", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_script_that_fails_says_why(source: str, kind: str, reason: str) -> None:
    # Nothing but its time ends sooner on a busy machine.
    budget = Budget(seconds=120)
    with pytest.raises(ExpressionError) as failed:
        run_starlark(source, SCOPE, budget)
    assert (failed.value.kind, reason in failed.value.reason) == (kind, True), failed.value
    assert run_starlark("result = 1", {}) == 1


def test_a_script_that_takes_too_long_is_killed() -> None:
    # It takes no memory, so that nothing else ends it before its time is up.
    body = "  for a in range(1 << 30):\n    for b in range(1 << 30):\n      pass\n"
    source = f"def f():\n{body}f()"
    with pytest.raises(ExpressionError, match=r"longer than 0\.3 s"):
        run_starlark(source, {}, Budget(steps=10**12, seconds=0.3))


def test_a_script_calls_functions_of_this_process() -> None:
    here = threading.get_ident()

    def scale(x: float, *, by: float = 2) -> Any:
        assert threading.get_ident() == here
        return {"scaled": x / by}

    source = "result = [scale(x = 1), scale(3, by = 4)]"
    assert run_starlark(source, {}, functions={"scale": scale}) == [
        {"scaled": 0.5},
        {"scaled": 0.75},
    ]


def test_what_a_function_raises_comes_through() -> None:
    class OwnError(Exception):
        pass

    def broken() -> None:
        raise OwnError("from the tool")

    with pytest.raises(OwnError, match="from the tool"):
        run_starlark("result = broken()", {}, functions={"broken": broken})
    assert run_starlark("result = 1", {}) == 1


def test_a_function_that_returns_no_json_is_named() -> None:
    with pytest.raises(ExpressionError, match=r"tool\(\) returned a value of type object"):
        run_starlark("result = tool()", {}, functions={"tool": object})


def test_a_script_changes_copies() -> None:
    nums = [1]
    assert run_starlark("nums.append(2)\nresult = nums", {"nums": nums}) == [1, 2]
    assert nums == [1]


def test_scripts_run_side_by_side() -> None:
    results: list[Any] = [None] * 6

    def run(place: int) -> None:
        results[place] = run_starlark("result = place * 2", {"place": place})

    threads = [threading.Thread(target=run, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0, 2, 4, 6, 8, 10]


def test_what_a_script_logs_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="evalcore.expressions"):
        run_starlark("log('at %s', 3)\nprint('and', 4)\nresult = 1", {})
    assert caplog.messages == ["at 3", "and 4"]


def test_a_script_that_cannot_be_parsed_has_its_place() -> None:
    check_starlark("result = 1")
    with pytest.raises(ExpressionSyntaxError) as refused:
        check_starlark("x = 1\nresult = 1 +\n")
    assert refused.value.line == 2
    with pytest.raises(ExpressionSyntaxError, match="load"):
        check_starlark("load('other.star', 'x')")


def test_a_script_may_print_often(caplog: pytest.LogCaptureFixture) -> None:
    source = "def run():\n    for n in range(200):\n        print(n)\n    return 1"
    with caplog.at_level(logging.INFO, logger="evalcore.expressions"):
        assert run_starlark(source, {}) == 1
    assert caplog.messages == [str(n) for n in range(200)]


def test_a_script_that_prints_too_often_is_told_so_and_leaves_a_process_for_the_next() -> None:
    source = "def run():\n    for n in range(2000):\n        print(n)\n    return 1"
    with pytest.raises(ExpressionError, match="more steps than one statement may take"):
        run_starlark(source, {}, Budget(seconds=120))
    assert run_starlark("result = 2", {}) == 2
