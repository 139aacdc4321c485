"""Scripts of the statement `starlark`: what they give and call, how they are stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from evalcore.expressions import limits
from evalcore.expressions.engine import ExpressionError, ExpressionSyntaxError, compile_script
from evalcore.expressions.limits import script_result

pytestmark = pytest.mark.multiprocess

RESULTS: dict[str, tuple[str, Any]] = {
    "variable": ("result = 0.5", 0.5),
    "none": ("result = None\ndef run():\n  return 1\n", None),
    "function": ("def run():\n  t = 0\n  for n in nums:\n    t += n\n  return t / 10\n", 0.6),
    "variable before function": ("result = 0.2\ndef run():\n  return 0.9\n", 0.2),
    "helper": ("def half(v):\n  return v / 2\nresult = half(0.8)\n", 0.4),
    "previous result": ("result = _ * 2", 1.2),
    "keys that are no texts": ("result = {1: (1, 2), 'x': None}", {1: (1, 2), "x": None}),
    "set of the scope": ("result = sorted(chosen)", [1, 2]),
    "statements at the top": (
        "result = []\nfor n in nums:\n  if n > 1:\n    result.append(n)",
        [2, 3],
    ),
    "a loop that ends": (
        "n = 0\nwhile True:\n  n += 1\n  if n > 9: break\nresult = n",
        10,
    ),
    "a caught exception": ("try:\n  1 / 0\nexcept ZeroDivisionError:\n  result = 2", 2),
    "an element set": ("d = {}\nd['a'] = [1]\nd['a'][0] = 5\nresult = d", {"a": [5]}),
    "formatted text": ("result = f'{name}!'", "World!"),
    "functions of expressions": ("result = sum(nums) + round(2.4) + pow(2, 3)", 16),
    "a key function": ("def size(t):\n  return len(t)\nresult = max('a', 'bb', key=size)", "bb"),
    "parse_json": ("result = parse_json(raw)['a'][1]", 2),
    "get": ("result = get(get({}, 'x', {}), 'y', 7)", 7),
}
SCOPE: dict[str, Any] = {
    "nums": [1, 2, 3],
    "_": 0.6,
    "chosen": {2, 1},
    "name": "World",
    "raw": '{"a": [1, 2]}',
    "_private": 1,
}
FAILURES = {
    "neither": ("x = 1", "ValueError", "no variable 'result'"),
    "division": ("\nresult = 1 / 0", "ZeroDivisionError", "line 2"),
    "unknown name": ("result = nope", "NameError", "nope"),
    "missing key": ("result = {}['a']", "KeyError", "a"),
    "types": ("result = 'a' + 1", "TypeError", "str"),
    "own failure": ("raise ValueError('no good')", "ValueError", "no good"),
    "result that is a function": ("def f():\n  return 1\nresult = f", "TypeError", "function"),
    "file": ("result = open('/etc/passwd')", "NameError", "open"),
    "dunder by getattr": ("result = getattr('', '__class__')", "NameError", "getattr"),
    "dunder by format": ("result = '{0.__class__}'.format(1)", "AttributeError", "__class__"),
    "an exception's traceback": (
        "try:\n  1 / 0\nexcept Exception as e:\n  result = e.with_traceback",
        "AttributeError",
        "with_traceback",
    ),
    "a function's globals": ("def f():\n  return 1\nresult = f.func_globals", "AttributeError", ""),
    "recursion": ("def f(n):\n  return f(n + 1)\nresult = f(1)", "RecursionError", "nested"),
    "text that doubles": (
        "x = 'ab'\nfor i in range(64):\n  x = x + x\nresult = len(x)",
        "LimitError",
        "larger than",
    ),
    "range as a list": ("result = list(range(1 << 30))", "LimitError", "memory"),
    "result that is too large": ("x = 'a' * 9000000\nresult = x + x", "LimitError", "larger than"),
    "power": ("result = pow(10, 1 << 30)", "LimitError", "bits"),
}
REFUSED = {
    "private name": "result = _private",
    "import": "import os",
    "import from": "from os import path",
    "import function": "result = __import__('os')",
    "dunder": "result = ''.__class__",
    "dunder of a function": "result = sum.__self__",
    "a class": "class A:\n  pass",
    "an attribute set": "d = {}\nd.a = 1",
    "globals": "global x\nx = 1",
    "a dunder parameter": "def f(__x):\n  return 1",
    "async": "async def f():\n  return 1",
}


Tools = Mapping[str, Callable[..., Awaitable[Any]]]


def run(source: str, scope: Mapping[str, Any] | None = None, tools: Tools | None = None) -> Any:
    return asyncio.run(script_result(source, scope or {}, tools or {}))


@pytest.mark.parametrize(("source", "result"), RESULTS.values(), ids=RESULTS)
def test_a_script_gives_its_result(source: str, result: Any) -> None:
    assert run(source, SCOPE) == result


@pytest.mark.parametrize(("source", "kind", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_script_that_fails_says_why(source: str, kind: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as failed:
        run(source, SCOPE)
    assert (failed.value.kind, reason in failed.value.reason) == (kind, True), failed.value


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_what_is_forbidden_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(ExpressionSyntaxError):
        compile_script(source)


def test_a_script_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.5)
    with pytest.raises(ExpressionError, match=r"longer than 0\.5 s"):
        run("while True:\n  pass")
    assert run("result = 1") == 1


def test_a_script_calls_functions_of_this_process_whose_time_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SECONDS", 1.0)

    async def scale(x: float, *, by: float = 2) -> Any:
        await asyncio.sleep(0.7)
        return {"scaled": x / by}

    source = "result = [scale(x = 1), scale(3, by = 4)]"
    assert run(source, {}, {"scale": scale}) == [{"scaled": 0.5}, {"scaled": 0.75}]


def test_what_a_function_raises_comes_through() -> None:
    class OwnError(Exception):
        pass

    async def broken() -> None:
        raise OwnError("from the tool")

    with pytest.raises(OwnError, match="from the tool"):
        run("result = broken()", {}, {"broken": broken})


def test_a_script_changes_copies() -> None:
    nums = [1]
    assert run("nums.append(2)\nresult = nums", {"nums": nums}) == [1, 2]
    assert nums == [1]


def test_what_a_script_logs_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="evalcore.expressions"):
        run("log('at %s', 3)\nprint('and', 4)\nresult = 1")
    assert caplog.messages == ["at 3", "and 4"]


def test_a_script_that_cannot_be_parsed_has_its_place() -> None:
    with pytest.raises(ExpressionSyntaxError) as refused:
        compile_script("x = 1\nresult = 1 +\n")
    assert refused.value.line == 2
