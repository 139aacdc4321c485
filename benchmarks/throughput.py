"""How long `evalcore run` takes, compared with a bare Python loop that does the same checks.

    uv run python -m benchmarks.throughput [--quick] [--rounds N]

Each case has a given output of 400 characters and five assertions. The whole command is measured
(start, load, plan, store, report), and so is the whole loop (start, parse, check, JSON lines).
Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

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

WORDS = (
    *("parcel", "invoice", "refund", "harbour", "lantern", "copper", "meadow", "signal"),
    *("winter", "ticket", "battery", "engine", "paper", "garden", "window", "letter"),
    *("answer", "number", "station", "market", "please", "today", "account", "weather"),
)
OUTPUT_CHARACTERS = 400
MEMORY_MB = 600

# A loop as it is written by hand; `{parse}` yields the cases of the file.
LOOP = """\
import json, re, sys

def cases(path):
{parse}

with open(sys.argv[2], "w") as results:
    for case in cases(sys.argv[1]):
        output, passed = case["fixtures"]["output"], []
        for assertion in case["assertions"]:
            kind, value = assertion["type"], assertion.get("value")
            if kind == "contains":
                ok = value in output
            elif kind == "icontains":
                ok = value.lower() in output.lower()
            elif kind == "regex":
                ok = re.search(value, output) is not None
            elif kind == "starts-with":
                ok = output.strip().startswith(value.strip())
            else:
                try:
                    json.loads(output)
                    ok = True
                except ValueError:
                    ok = False
            passed.append(ok)
        line = {{"id": case["id"], "passed": all(passed), "score": sum(passed) / len(passed),
                "results": passed, "output": output}}
        results.write(json.dumps(line) + "\\n")
"""
PARSE_JSONL = """\
    with open(path) as file:
        for line in file:
            yield json.loads(line)
"""
PARSE_YAML = """\
    import yaml
    with open(path) as file:
        yield from yaml.load(file, Loader=yaml.CSafeLoader)["tests"]
"""


class Workload(NamedTuple):
    """Some lines of the table: the allowed multiples of the loop's time, by variant."""

    cases: int
    kind: str
    bounds: Mapping[str, float]
    memory_mb: float | None = None


WORKLOADS = (
    Workload(10_000, "jsonl", {"same": 4.0, "own-values": 5.0, "own-patterns": 5.0}),
    Workload(10_000, "yaml", dict.fromkeys(("same", "own-values", "own-patterns"), 2.0)),
    Workload(100_000, "jsonl", {"same": 2.5, "own-values": 3.5, "own-patterns": 3.5}, MEMORY_MB),
)
# Patterns are a variant of their own: each has to be translated and compiled once.
VARIANTS = {
    "same": "same assertions in every case",
    "own-values": "each case its own values",
    "own-patterns": "each case its own values and pattern",
}


def make_case(number: int, variant: str, random: Random) -> dict[str, Any]:
    """Return a case whose five assertions pass; its output has `OUTPUT_CHARACTERS`."""
    order = f"order-{number:06}"
    body = " ".join(random.choices(WORDS, k=60))
    empty = json.dumps({"id": number, "order": order, "text": ""})
    output = json.dumps(
        {"id": number, "order": order, "text": body[: OUTPUT_CHARACTERS - len(empty)]}
    )
    own, own_pattern = variant != "same", variant == "own-patterns"
    return {
        "id": f"case-{number}",
        "input": f"What became of {order}?",
        "fixtures": {"output": output},
        "assertions": [
            {"type": "contains", "value": order if own else "order-"},
            {"type": "icontains", "value": order.upper() if own else "ORDER"},
            {"type": "regex", "value": rf'"id": {number}\b' if own_pattern else r'"id": \d+'},
            {"type": "starts-with", "value": f'{{"id": {number}' if own else '{"id": '},
            {"type": "is-json"},
        ],
    }


def write_cases(path: Path, cases: int, variant: str) -> None:
    """Write a suite file of that many cases, always the same ones."""
    random = Random(20_24)
    rows = (make_case(number, variant, random) for number in range(cases))
    with path.open("w", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(case) + "\n" for case in rows)
            return
        import yaml

        file.write("tests:\n")
        for case in rows:
            file.write(yaml.dump([case], Dumper=yaml.CSafeDumper, sort_keys=False, width=1000))


def measure(workload: Workload, variant: str, folder: Path, rounds: int) -> Row:
    """Return the line of one workload with one variant of the data."""
    suite = folder / f"cases-{workload.cases}-{variant}.{workload.kind}"
    write_cases(suite, workload.cases, variant)
    loop = LOOP.format(parse=PARSE_JSONL if workload.kind == "jsonl" else PARSE_YAML)
    store = folder / "store"

    def run_evalcore() -> Measured:
        shutil.rmtree(store, ignore_errors=True)
        return run_measured([EVALCORE, "run", str(suite), "--store", str(store)])

    def run_loop() -> Measured:
        return run_measured([sys.executable, "-c", loop, str(suite), str(folder / "results.jsonl")])

    ours, bare = in_turn(run_evalcore, run_loop, rounds=rounds)
    suite.unlink()
    ratio = ours.seconds / bare.seconds
    missed = []
    bound = workload.bounds[variant]
    if ratio > bound:
        missed.append(f"{ratio:.2f}× > {bound:g}×")
    if workload.memory_mb is not None and ours.peak_mb >= workload.memory_mb:
        missed.append(f"{ours.peak_mb:.0f} MB ≥ {workload.memory_mb:.0f} MB")
    cells = (
        f"{workload.cases:,} {workload.kind.upper()}, {VARIANTS[variant]}".replace(",", " ", 1),
        f"{ours.seconds:.2f}",
        f"{bare.seconds:.2f}",
        f"{ratio:.2f}×",
        f"{bound:g}×",
        f"{ours.peak_mb:.0f} MB",
        "–" if workload.memory_mb is None else f"{workload.memory_mb:.0f} MB",
    )
    return Row(cells, ", ".join(missed))


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure `evalcore run` against a bare loop.")
    parser.add_argument(
        "--quick", action="store_true", help="10 000 cases only; nothing is written"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    header = ("what", "evalcore (s)", "loop (s)", "ratio", "bound", "peak memory", "bound")
    rows = []
    with TemporaryDirectory(prefix="evalcore-bench-") as folder:
        for workload in WORKLOADS:
            if options.quick and workload.cases > 10_000:
                continue
            for variant in VARIANTS:
                try:
                    rows.append(measure(workload, variant, Path(folder), options.rounds))
                except CommandFailedError as error:
                    print(error, file=sys.stderr)
                    return 1
                print(" | ".join((*rows[-1].cells, rows[-1].verdict)), file=sys.stderr)
    text = table(header, rows)
    print(text)
    if not options.quick:
        about = (
            f"## Throughput\n\n`uv run python -m benchmarks.throughput`, median of "
            f"{options.rounds}, {machine()}.\n\n"
        )
        write_section("throughput", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
