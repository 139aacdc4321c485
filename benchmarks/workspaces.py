"""What a workspace for each test costs, beside copying its files.

    uv run python -m benchmarks.workspaces [--rounds N]

200 tests of a target that answers at once, 8 at the same time, each in a copy of a template of 50
files (10 folders, 2 kB each). Overhead per test: the whole command with workspaces less the same
without, divided by the tests; it holds making, watching for changes and removing. Beside it, in the
same series, 8 threads that copy the template with `shutil.copytree`. Exit code 1 if the overhead is
3 times the copy or more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import (
    EVALCORE,
    CommandFailedError,
    Measured,
    Row,
    in_turn,
    machine,
    run_measured,
    table,
    write_section,
)

TESTS = 200
FILES = 50
CONCURRENCY = 8
BOUND = 3.0
_HEADER = ("what", "ms per test", "ratio", "bound")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if the bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    with TemporaryDirectory(prefix="evalcore-benchmark-") as folder:
        try:
            alone, worked, copied = _measure(Path(folder), rounds)
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 1
    overhead_ms = (worked.seconds - alone.seconds) / TESTS * 1000
    copy_ms = copied.seconds / TESTS * 1000
    ratio = overhead_ms / copy_ms
    missed = "" if ratio < BOUND else f"{ratio:.2f}× ≥ {BOUND:g}×"
    rows = [
        Row(
            ("a workspace of its own", f"{overhead_ms:.2f}", f"{ratio:.2f}×", f"{BOUND:g}×"), missed
        ),
        Row(("`shutil.copytree` of its files", f"{copy_ms:.2f}", "1×", "–"), ""),
    ]
    intro = (
        f"`uv run python -m benchmarks.workspaces`, median of {rounds}, {machine()}. "
        f"{TESTS} tests, {FILES} files each, concurrency {CONCURRENCY}."
    )
    lines = table(_HEADER, rows)
    print(lines)
    write_section("workspaces", f"## Workspaces\n\n{intro}\n\n{lines}")
    return 1 if missed else 0


def _measure(folder: Path, rounds: int) -> list[Measured]:
    template = folder / "template"
    for number in range(FILES):
        path = template / f"part{number % 10}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"line {number}\n" * 200)
    commands = []
    for name, workspace in (("alone", {}), ("worked", {"template": "template"})):
        suite = folder / f"{name}.eval.yaml"
        suite.write_text(json.dumps(_suite(workspace)))
        commands.append(partial(_run, suite, folder / f"store-{name}"))
    return in_turn(*commands, partial(_copy, template, folder / "copies"), rounds=rounds)


def _suite(workspace: dict[str, str]) -> dict[str, object]:
    tests = [
        {"id": f"t{number}", "input": "x", "assertions": [{"type": "contains", "value": "ok"}]}
        for number in range(TESTS)
    ]
    suite: dict[str, object] = {
        "targets": [{"name": "default", "provider": "mock", "response": "ok"}],
        "execution": {"workers": CONCURRENCY},
        "tests": tests,
    }
    return suite | ({"workspace": {**workspace, "isolation": "per_test"}} if workspace else {})


def _run(suite: Path, store: Path) -> Measured:
    shutil.rmtree(store, ignore_errors=True)
    return run_measured([EVALCORE, "run", str(suite), "--store", str(store)])


def _copy(template: Path, folder: Path) -> Measured:
    folder.mkdir()
    started = time.perf_counter()
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        targets = [folder / str(number) for number in range(TESTS)]
        list(pool.map(partial(shutil.copytree, template), targets))
    seconds = time.perf_counter() - started
    shutil.rmtree(folder)
    return Measured(seconds, 0.0)


if __name__ == "__main__":
    sys.exit(main())
