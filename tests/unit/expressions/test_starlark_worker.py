"""The process that runs Starlark scripts: a line in is a script, a line out is its result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evalcore.expressions import starlark_worker
from evalcore.expressions.starlark_wire import decode, encode

pytestmark = pytest.mark.multiprocess


class Process:
    """The program as `starlark` starts it, in this environment."""

    def __init__(self) -> None:
        program = [sys.executable, "-I", str(Path(starlark_worker.__file__)), str(512 << 20)]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.greeting = self.receive()

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(encode(dict(message)))
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return decode(self._process.stdout.readline())

    def run(self, source: str, **question: Any) -> dict[str, Any]:
        """Return the first message that the script sends."""
        defaults = {"steps": 10_000_000, "only_parse": False, "scope": {}, "functions": []}
        self.send({"source": source} | defaults | question)
        return self.receive()

    def end(self) -> int:
        """Close its input; return its exit code."""
        self._process.communicate(timeout=120)
        return self._process.returncode


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    worker = Process()
    assert worker.greeting == {"ready": True}
    yield worker
    assert worker.end() == 0


RESULTS: Mapping[str, Any] = {
    "result = 1": 1,
    "def run():\n  return [1, 'a', None]": [1, "a", None],
    "result = {1: True, 'x': 2.5}": {1: True, "x": 2.5},
    "result = struct(a = 1)": {"a": 1},
    "result = f'{n} of {xs}'": "2 of [1, 2]",
    "result = get({'a': 1}, 'z', 7) + get(xs, -1) + get(xs, 9, 100)": 109,
    "result = [get('abc', 1), get(5, 0), get(xs, 'a', 'none')]": ["b", None, "none"],
    "result = parse_json('[1, {\"a\": null}]')": [1, {"a": None}],
    "result = parse_json('no', True)": "no",
    "result = print_json({'a': [1, 'é']})": '{"a": [1, "é"]}',
    "result = print_json([1], True)": "[\n  1\n]",
    "result = pow(2, 10) + pow(2.0, 0)": 1025.0,
    "result = hex(255) + oct(8)": "0xff0o10",
    "result = [round(2.567, 1), sum([1, 2]), round(2.5)]": [2.6, 3, 2],
}


@pytest.mark.parametrize("source", RESULTS)
def test_a_script_s_result_comes_back_with_its_types(process: Process, source: str) -> None:
    answer = process.run(source, scope={"n": 2, "xs": [1, 2]})
    assert answer == {"result": RESULTS[source]}


FAILURES: Mapping[str, tuple[str, str, int]] = {
    "x = 1": ("ValueError", "the script sets no variable 'result' and defines no function", 0),
    "\nresult = 1 / 0": ("ZeroDivisionError", "zero", 2),
    "result = nope": ("NameError", "nope", 1),
    "result = {}['a']": ("KeyError", "a", 1),
    "result = [1][4]": ("IndexError", "out of bound", 1),
    "result = 'a' + 1": ("TypeError", "not supported", 1),
    "result = ''.upper2()": ("AttributeError", "upper2", 1),
    "result = (": ("ValueError", "", 1),
    "fail('no good')": ("ValueError", "no good", 1),
    "result = parse_json('{')": ("ValueError", "the text is no JSON", 1),
    "result = pow(2, 100000)": ("ValueError", "the integer would be too large", 1),
    "def f():\n  return f()\nresult = f()": ("RecursionError", "100 calls", 2),
    "def f():\n  return 1\nresult = f": ("TypeError", "function", 0),
    "load('a', 'b')": ("ValueError", "load", 1),
}


@pytest.mark.parametrize("source", FAILURES)
def test_a_script_that_fails_says_why_and_in_which_line(process: Process, source: str) -> None:
    kind, reason, line = FAILURES[source]
    answer = process.run(source)
    assert (answer["kind"], answer.get("line", 0)) == (kind, line)
    assert reason in answer["error"]


def test_a_script_that_takes_too_many_steps_is_stopped(process: Process) -> None:
    source = "def run():\n  for n in range(100000000):\n    pass\n"
    answer = process.run(source, steps=1_000_000)
    assert answer["kind"] == "LimitError"
    assert answer["error"] == "it takes more steps than a script may take"


def test_parsing_a_script_does_not_run_it(process: Process) -> None:
    assert process.run("fail('it ran')", only_parse=True) == {"result": None}
    answer = process.run("x = = 1", only_parse=True)
    assert (answer["line"], answer["column"]) == (1, 5)


def test_a_call_of_the_engine_s_function_waits_for_its_answer(process: Process) -> None:
    source = "first = ask(1, word = 'a')\nresult = [first, ask({2: ()})]"
    assert process.run(source, functions=["ask"]) == {
        "call": "ask",
        "values": [1],
        "by_name": {"word": "a"},
    }
    process.send({"returned": {"a": "yes"}})
    assert process.receive() == {"call": "ask", "values": [{2: []}], "by_name": {}}
    process.send({"returned": None})
    assert process.receive() == {"result": [{"a": "yes"}, None]}


def test_a_call_that_raises_in_the_engine_ends_the_script(process: Process) -> None:
    source = "ask()\nresult = 1"
    assert process.run(source, functions=["ask"])["call"] == "ask"
    process.send({"raised": True})
    assert process.receive() == {"stopped": True}
    # The next script does not begin as a stopped one.
    assert process.run("result = 1 / 0")["kind"] == "ZeroDivisionError"


def test_a_function_cannot_be_passed_to_the_engine(process: Process) -> None:
    source = "def f():\n  return 1\nresult = ask(f)"
    answer = process.run(source, functions=["ask"])
    assert answer["line"] == 3
    assert "not supported on type `function`" in answer["error"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("log('%s is %d', 'a', 2)", "a is 2"),
        ("log('plain')", "plain"),
        ("log('%d', 'a')", "%d a"),
        ("print(1, 'a', [2])", "1 a [2]"),
    ],
)
def test_what_a_script_logs_is_sent_before_its_result(
    process: Process, call: str, text: str
) -> None:
    assert process.run(f"{call}\nresult = 1") == {"log": text}
    assert process.receive() == {"result": 1}
