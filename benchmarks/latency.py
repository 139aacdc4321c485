"""How close `evalcore run` comes to the time that a model's latency allows.

    uv run python -m benchmarks.latency [--rounds N]

2 000 cases with one assertion each against a model server on loopback, in a process of its own,
that answers after 200 ms (benchmarks.constant_model, which costs little itself). The whole command
is measured (start, load, plan, calls, store, report).
At concurrency 100 against the ideal of 20 rounds of 200 ms, at 400 against a bare aiohttp loop that
asks the same in the same series, start and parsing included. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import (
    EVALCORE,
    ROOT,
    CommandFailedError,
    Measured,
    Row,
    in_turn,
    machine,
    run_measured,
    table,
    write_section,
)

CASES = 2_000
LATENCY_S = 0.2
IDEAL_AT = 100
IDEAL_BOUND = 1.25
LOOP_AT = 400
LOOP_BOUND = 1.5

# A loop as it is written by hand.
LOOP = """\
import asyncio, json, sys
import aiohttp, yaml

async def main(path, url, concurrency):
    with open(path) as file:
        tests = yaml.load(file, Loader=yaml.CSafeLoader)["tests"]
    waiting = iter(tests)
    with open(sys.argv[4], "w") as results:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async def work():
                for test in waiting:
                    question = {"model": "m", "messages": [
                        {"role": "user", "content": test["input"]}]}
                    async with session.post(url + "/chat/completions", json=question) as response:
                        answer = await response.json()
                    text = answer["choices"][0]["message"]["content"]
                    line = {"id": test["id"], "output": text, "passed": "order" in text}
                    results.write(json.dumps(line) + "\\n")
            await asyncio.gather(*(work() for _ in range(concurrency)))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def write_suite(path: Path, url: str) -> None:
    """Write the suite: a model that is asked for one order after the other."""
    tests = "\n".join(
        f"  - {{id: case-{number}, input: 'What became of order {number}?'}}"
        for number in range(CASES)
    )
    path.write_text(
        "name: latency\n"
        "targets:\n"
        f"  - {{name: model, provider: openai, model: gpt-4o-mini, base_url: '{url}', "
        "api_key: none}\n"
        "execution: {target: model}\n"
        "assertions: [{type: contains, value: order}]\n"
        f"tests:\n{tests}\n"
    )


@contextmanager
def model_server() -> Iterator[str]:
    """Run the server in a process of its own; give its base URL."""
    latency = str(LATENCY_S * 1000)
    command = [sys.executable, "-m", "benchmarks.constant_model"]
    command += ["--port", "0", "--latency-ms", latency]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def evaluate(folder: Path, concurrency: int) -> Measured:
    """Measure the whole command with a new store; it must answer and pass every case."""
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    command = [EVALCORE, "run", str(folder / "latency.eval.yaml"), "--store", str(store)]
    measured = run_measured([*command, "--concurrency", str(concurrency), "--json"])
    (report,) = store.glob("runs/*/*/report.json")
    passed = json.loads(report.read_text())["counts"]["passed"]
    if passed != CASES:
        raise CommandFailedError(f"only {passed} of {CASES} cases passed")
    return measured


def loop(folder: Path, url: str, concurrency: int) -> Measured:
    """Measure the bare loop."""
    script, results = folder / "loop.py", folder / "results.jsonl"
    script.write_text(LOOP)
    suite = folder / "latency.eval.yaml"
    return run_measured(
        [sys.executable, str(script), str(suite), url, str(concurrency), str(results)]
    )


def rows_of(at_ideal: Measured, at_loop: Measured, bare: Measured) -> list[Row]:
    """Return the lines of the table."""
    ideal_s = CASES / IDEAL_AT * LATENCY_S
    compared = (
        (f"concurrency {IDEAL_AT}, ideal", at_ideal, ideal_s, IDEAL_BOUND),
        (f"concurrency {LOOP_AT}, bare loop", at_loop, bare.seconds, LOOP_BOUND),
    )
    rows = []
    for what, measured, against_s, bound in compared:
        ratio = measured.seconds / against_s
        cells = (what, f"{measured.seconds:.2f}", f"{against_s:.2f}", f"{ratio:.2f}×")
        missed = "" if ratio <= bound else f"{ratio:.2f}× > {bound:g}×"
        rows.append(Row((*cells, f"{bound:g}×", f"{measured.peak_mb:.0f} MB"), missed))
    return rows


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure `evalcore run` against a slow model.")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="evalcore-bench-") as name, model_server() as url:
        folder = Path(name)
        write_suite(folder / "latency.eval.yaml", url)
        runs = (
            partial(evaluate, folder, IDEAL_AT),
            partial(evaluate, folder, LOOP_AT),
            partial(loop, folder, url, LOOP_AT),
        )
        try:
            at_ideal, at_loop, bare = in_turn(*runs, rounds=options.rounds)
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 1
    rows = rows_of(at_ideal, at_loop, bare)
    header = ("what, compared with", "evalcore (s)", "that (s)", "ratio", "bound", "peak memory")
    text = table(header, rows)
    print(text)
    about = (
        f"## Latency\n\n`uv run python -m benchmarks.latency`, {CASES} calls of "
        f"{LATENCY_S * 1000:.0f} ms, median of {options.rounds}, {machine()}.\n\n"
    )
    write_section("latency", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
