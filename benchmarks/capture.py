"""What `capture` costs the caller: 1 000 calls a second, the store there, slow, away.

    uv run python -m benchmarks.capture [--seconds N]

Each row is a process of its own, which measures single calls of a function that returns at once.
`away` refuses connections, `silent` takes them and never answers; these rows last a minute by
default. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import ROOT, Row, machine, table, write_section

P99_US = 50.0
PROGRAM = """
import json, sys, time
from evalcore import capture
from evalcore.capture import capture_counts

seconds, kind, captured = float(sys.argv[1]), sys.argv[2], sys.argv[3] == "captured"

def answer(question, session=None):
    return "an answer of some words"

if captured:
    answer = capture(dataset="benchmark")(answer)
inputs = {
    "text": lambda n: (f"Where is my order number {n}?", "s1"),
    "conversation": lambda n: ([{"role": "user", "content": f"message {n} " * 40}] * 40,),
    "huge": lambda n: ({"documents": [{"text": "x" * 2_000_000, "pages": [1, 2, 3]}] * 500},),
    "objects": lambda n: ([object(), {1, 2}, {"a": object()}, complex(n, 1)],),
}[kind]
times = []
end = time.monotonic() + seconds
number = 0
while time.monotonic() < end:
    arguments = inputs(number)
    started = time.perf_counter_ns()
    answer(*arguments)
    times.append(time.perf_counter_ns() - started)
    number += 1
    time.sleep(0.001)
times.sort()
counts = capture_counts()
print(json.dumps({
    "p50": times[len(times) // 2] / 1e3,
    "p99": times[len(times) * 99 // 100] / 1e3,
    "calls": number,
    "written": counts.written,
    "dropped": sum(counts.dropped.values()),
}), flush=True)
"""
# What is called, the input, and where the store is.
ROWS = (
    ("not captured", "text", "local"),
    ("captured", "text", "local"),
    ("captured", "conversation", "local"),
    ("captured", "huge", "local"),
    ("captured", "objects", "local"),
    ("captured", "text", "away"),
    ("captured", "text", "silent"),
)


@contextmanager
def store(location: str) -> Iterator[dict[str, str]]:
    """Yield the variables that name a store: a folder, or a server that is away or silent."""
    if location == "local":
        with TemporaryDirectory() as folder:
            yield {"EVALCORE_STORE": folder}
        return
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if location == "silent":
            server.listen(64)
        yield {
            "EVALCORE_STORE": "s3://bucket/store",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
        }


def measured(kind: str, captured: str, location: str, seconds: float) -> dict[str, Any]:
    """Return the figures of one process."""
    with store(location) as variables:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(seconds), kind, captured],
            env=os.environ | variables,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
    figures: dict[str, Any] = json.loads(ended.stdout)
    return figures


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure what capture costs the caller.")
    parser.add_argument("--seconds", type=float, default=60, help="of rows without a store")
    seconds = parser.parse_args().seconds
    rows, load = [], os.getloadavg()[0]
    for captured, kind, location in ROWS:
        length = seconds if location != "local" else min(seconds, 15.0)
        figures = measured(kind, captured, location, length)
        missed = ""
        if captured == "captured" and figures["p99"] > P99_US:
            missed = f"{figures['p99']:.0f} µs > {P99_US:.0f} µs"
        cells = (
            f"{captured}, {kind}",
            f"{location}, {length:.0f} s",
            f"{figures['p50']:.1f}",
            f"{figures['p99']:.1f}",
            f"{P99_US:.0f}" if captured == "captured" else "–",
            *(f"{figures[name]}" for name in ("calls", "written", "dropped")),
        )
        rows.append(Row(cells, missed))
        print(" | ".join(cells), missed, flush=True)
    header = ("call", "store", "p50 (µs)", "p99 (µs)", "bound", "calls", "written", "dropped")
    text = (
        "## Capture\n\n`uv run python -m benchmarks.capture`, single calls at about 1 000 a "
        f"second, {machine()}, load {load:.1f} when it began. A huge input is dropped and counted, "
        "as are captures while the store is away for longer than the queue and one batch hold.\n\n"
    )
    write_section("capture", text + table(header, rows))
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
