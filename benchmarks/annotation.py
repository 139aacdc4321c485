"""Whether each label of a long queue is stored, and the next item shown, without a wait.

    uv run python -m benchmarks.annotation [--labels N]

One annotator answers the whole queue of a run in the viewer (`evalcore view`, a process of its
own, local store): a form, then the page that follows it. Exit code 1 if one of them is over its
bound, or a label is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

import httpx

from benchmarks.measure import EVALCORE, Row, machine, table, write_section
from benchmarks.viewer import serving

LABEL_MS: Final = 100.0
_TASK: Final = re.compile(r'name="task" value="([0-9a-f]{64})"')
_ANNOTATOR: Final = "ann"


def make_store(folder: Path, labels: int) -> str:
    """Run a suite that asks people `labels` questions into `folder/store`; return the run's id."""
    question = {"type": "human", "question": "Is it kind?", "labels": ["yes", "no"],
                "expected": "yes"}  # fmt: skip
    tests = [
        {
            "id": f"case-{number}",
            "input": f"Where is order {number}?",
            "fixtures": {"output": f"On its way, number {number}."},
            "assertions": [question],
        }
        for number in range(labels)
    ]
    suite = folder / "asked.json"
    suite.write_text(json.dumps({"name": "asked", "tests": tests}), "utf-8")
    # It ends as inconclusive: no label is there.
    command = [EVALCORE, "run", str(suite), "--store", str(folder / "store")]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return max((folder / "store" / "runs" / "asked").iterdir()).name


def answer_all(client: httpx.Client, run: str) -> tuple[list[float], list[float]]:
    """Answer until nothing is left; return the milliseconds of the forms and of the pages."""
    path, forms, pages = f"/annotate/{run}", [], []
    client.cookies.set("evalcore-annotator", _ANNOTATOR)
    client.headers["origin"] = str(client.base_url).rstrip("/")
    while True:
        began = time.perf_counter()
        page = client.get(path)
        pages.append((time.perf_counter() - began) * 1_000)
        task = _TASK.search(page.raise_for_status().text)
        if task is None:
            return forms, pages
        fields = {"annotator": _ANNOTATOR, "task": task[1], "label": "yes"}
        began = time.perf_counter()
        answer = client.post(path, data=fields, follow_redirects=False)
        forms.append((time.perf_counter() - began) * 1_000)
        assert answer.status_code == 303, answer.text


def line(name: str, times: list[float], missing: int = 0) -> Row:
    """Return a line of the table; the first time is not among the percentiles."""
    first, *later = times
    cuts = quantiles(later, n=100, method="inclusive")
    over = sum(each > LABEL_MS for each in later)
    missed = [f"{over} of {len(later)} over {LABEL_MS:.0f} ms"] if over else []
    missed += [f"{missing} labels are missing"] if missing else []
    numbers = (first, cuts[49], cuts[98], max(later))
    return Row((name, *(f"{each:.0f}" for each in numbers)), ", ".join(missed))


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure the annotation queue of the viewer.")
    parser.add_argument("--labels", type=int, default=1_000)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        folder = Path(name)
        run = make_store(folder, options.labels)
        load = os.getloadavg()[0]
        with serving(folder / "store") as (client, _):
            forms, pages = answer_all(client, run)
        stored = len(list((folder / "store" / "annotations").rglob("*.json")))
    rows = [
        line("a label is stored", forms, options.labels - stored),
        line("the next item is shown", pages),
    ]
    text = table(("answer", "first (ms)", "p50 (ms)", "p99 (ms)", "slowest (ms)"), rows)
    print(text)
    about = (
        f"## The annotation queue\n\n`uv run python -m benchmarks.annotation`, all "
        f"{options.labels:,} labels of a run, one after another, {machine()}, load {load:.1f} when "
        f"it began. Bound: {LABEL_MS:.0f} ms for each after the first, which opens the run.\n\n"
    )
    write_section("annotation", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
