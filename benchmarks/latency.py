"""How close `evalcore run` comes to the time that a model's latency allows.

    uv run python -m benchmarks.latency [--rounds N]

Cases with one assertion each against a model server on loopback, in a process of its own, that
answers after 200 ms (benchmarks.constant_model, which costs little itself). The whole command is
measured (start, load, plan, calls, store, report). It is compared with the ideal, which is the
calls alone, or with a bare aiohttp loop that asks the same in the same series, start and parsing
included. Exit code 1 if a bound is missed.
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
from typing import NamedTuple

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

LATENCY_S = 0.2


class Work(NamedTuple):
    """So many calls at once, and what the whole command may take of the ideal or the bare loop."""

    cases: int
    concurrency: int
    bound: float
    against_ideal: bool = False

    @property
    def ideal_s(self) -> float:
        """Return how long the calls alone take."""
        return self.cases / self.concurrency * LATENCY_S

    def suite(self, folder: Path) -> Path:
        """Return the path of the suite."""
        return folder / f"latency-{self.cases}.eval.yaml"


WORKS = (
    Work(2_000, 100, 1.12, against_ideal=True),
    Work(2_000, 400, 1.15),
    Work(20_000, 1_000, 1.15),
)

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


def write_suite(path: Path, url: str, cases: int) -> None:
    """Write the suite: a model that is asked for one order after the other."""
    tests = "\n".join(
        f"  - {{id: case-{number}, input: 'What became of order {number}?'}}"
        for number in range(cases)
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


def evaluate(folder: Path, work: Work) -> Measured:
    """Measure the whole command with a new store; it must answer and pass every case."""
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    command = [EVALCORE, "run", str(work.suite(folder)), "--store", str(store)]
    measured = run_measured([*command, "--concurrency", str(work.concurrency), "--json"])
    (report,) = store.glob("runs/*/*/report.json")
    passed = json.loads(report.read_text())["counts"]["passed"]
    if passed != work.cases:
        raise CommandFailedError(f"only {passed} of {work.cases} cases passed")
    return measured


def loop(folder: Path, url: str, work: Work) -> Measured:
    """Measure the bare loop."""
    script, results = folder / "loop.py", folder / "results.jsonl"
    script.write_text(LOOP)
    arguments = [str(work.suite(folder)), url, str(work.concurrency), str(results)]
    return run_measured([sys.executable, str(script), *arguments])


def row_of(work: Work, ours: Measured, bare: Measured) -> Row:
    """Return the line of the table."""
    against_s = work.ideal_s if work.against_ideal else bare.seconds
    ratio = ours.seconds / against_s
    cells = (
        f"{work.cases} calls, {work.concurrency} at once",
        f"{ours.seconds:.2f}",
        f"{work.ideal_s:.2f}",
        f"{bare.seconds:.2f}",
        f"{ratio:.2f}× the {'ideal' if work.against_ideal else 'loop'}",
        f"{work.bound:g}×",
        f"{ours.peak_mb:.0f} MB",
    )
    return Row(cells, "" if ratio <= work.bound else f"{ratio:.2f}× > {work.bound:g}×")


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure `evalcore run` against a slow model.")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    rows = []
    with TemporaryDirectory(prefix="evalcore-bench-") as name, model_server() as url:
        folder = Path(name)
        for work in WORKS:
            write_suite(work.suite(folder), url, work.cases)
            runs = partial(evaluate, folder, work), partial(loop, folder, url, work)
            try:
                ours, bare = in_turn(*runs, rounds=options.rounds)
            except CommandFailedError as error:
                print(error, file=sys.stderr)
                return 1
            rows.append(row_of(work, ours, bare))
    header = ("what", "evalcore (s)", "ideal (s)", "bare loop (s)", "ratio", "bound", "peak memory")
    text = table(header, rows)
    print(text)
    about = (
        f"## Latency\n\n`uv run python -m benchmarks.latency`, calls of {LATENCY_S * 1000:.0f} ms, "
        f"median of {options.rounds}, {machine()}.\n\n"
    )
    write_section("latency", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
