"""Script suites against their bounds: `uv run python -m benchmarks.scripts`.

5 000 trivial `eval` tests, the whole command against a bare loop that loads the same file with
`CSafeLoader` and evaluates the same expressions; 5 000 tests with one model call of 200 ms each at
concurrency 100 against the ideal 10 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.latency import LATENCY_S, model_server

TESTS = 5_000
CONCURRENCY = 100
PROGRAM = str(Path(sys.executable).with_name("evalcore"))

_BARE = """
import sys, yaml
from evalcore.expressions.template import compile_template
with open(sys.argv[1], "rb") as file:
    document = yaml.load(file, Loader=yaml.CSafeLoader)
shared = document["shared"]["data"]
total = 0.0
for suite in document["suites"].values():
    for test in suite["tests"].values():
        value = test["do"]["eval"]
        if isinstance(value, str):
            value = compile_template(value).render({**shared, **test.get("data", {})})
        total += float(value)
print(total)
"""

_EVALS = ('"${1.0 if actual == expected else 0.0}"', '"${len(words) / 4}"', "0.5", '"${0.25 * 2}"')


def trivial_suite(tests: int) -> str:
    """Return a suite of tests that wait for nothing."""
    lines = ["shared:", "  data: {expected: hello, words: [a, b, c]}", "suites:"]
    for number in range(tests):
        if number % 100 == 0:
            lines += [f"  suite_{number // 100}:", "    tests:"]
        data = "data: {actual: hello}, " if number % 4 == 0 else ""
        lines.append(f"      test_{number}: {{{data}do: {{eval: {_EVALS[number % 4]}}}}}")
    return "\n".join(lines) + "\n"


def distinct_suite(tests: int) -> str:
    """Return a suite in which no two tests have the same expression."""
    lines = ["shared:", "  data: {}", "suites:", "  s:", "    tests:"]
    lines += [
        f'      test_{number}: {{do: {{eval: "${{{number} / {tests}}}"}}}}'
        for number in range(tests)
    ]
    return "\n".join(lines) + "\n"


def calling_suite(tests: int) -> str:
    """Return a suite in which every test asks a model once."""
    lines = [
        "shared:",
        "  tools: [{import_tool: llm_workers.tools.llm_tool.build_llm_tool, name: llm}]",
        "suites:",
        "  s:",
        "    tests:",
    ]
    for number in range(tests):
        steps = f'[{{call: llm, params: {{prompt: "Say {number}"}}}}, {{eval: "${{len(_) > 0}}"}}]'
        lines.append(f"      test_{number}: {{do: {steps}}}")
    return "\n".join(lines) + "\n"


class Took(NamedTuple):
    """The shortest times of a command, in seconds: on the clock, and of the processor."""

    wall: float
    cpu: float


def best_of(repeats: int, *command: str, env: dict[str, str] | None = None) -> Took:
    """Return the shortest times that the command took."""
    walls, cpus = [], []
    for _ in range(repeats):
        began, before = time.perf_counter(), os.times()
        done = subprocess.run(command, capture_output=True, env=env, check=False)
        walls.append(time.perf_counter() - began)
        after = os.times()
        used = after.children_user - before.children_user
        cpus.append(used + after.children_system - before.children_system)
        if done.returncode:
            raise SystemExit(done.stderr.decode())
    return Took(min(walls), min(cpus))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["evals", "calls"])
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        suite, store = Path(folder, "suite.yaml"), str(Path(folder, "store"))
        if chosen.only != "calls":
            for name, text in (("trivial", trivial_suite), ("distinct", distinct_suite)):
                suite.write_text(text(TESTS))
                bare = best_of(chosen.repeats, sys.executable, "-c", _BARE, str(suite))
                whole = best_of(chosen.repeats, PROGRAM, "run", str(suite), "--store", store)
                rate = f"{whole.wall / bare.wall:.2f}x, processor {whole.cpu / bare.cpu:.2f}x"
                took = f"{whole.wall:.2f} s, bare loop {bare.wall:.2f} s"
                print(f"{TESTS} {name} evals: {took}: {rate} (bound 4x)")
        if chosen.only != "evals":
            suite.write_text(calling_suite(TESTS))
            ideal = TESTS * LATENCY_S / CONCURRENCY
            with model_server() as url:
                env = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
                concurrency = ("--concurrency", str(CONCURRENCY))
                command = (PROGRAM, "run", str(suite), "--store", store, *concurrency)
                wall = best_of(1, *command, env=env).wall
            print(f"{TESTS} calls: {wall:.2f} s, ideal {ideal:.0f} s: {wall / ideal:.2f}x (1.25x)")


if __name__ == "__main__":
    main()
