"""How long the smallest commands take: a one-case suite, and `--help`.

    uv run python -m benchmarks.startup [--rounds N]

The one-case suite is compared with the import of the three libraries that it cannot do without.
Exit code 1 if a bound is missed, or if a command imports what it has no use for.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import (
    EVALCORE,
    ROOT,
    Measured,
    Row,
    in_turn,
    machine,
    run_measured,
    table,
    write_section,
)

RATIO = 2.5
RUN_S = 0.6
HELP_S = 0.25
UNWANTED = ("prefect", "boto3", "botocore", "pyarrow")
MAIN = "from evalcore.cli.main import main; main()"
ONE_CASE = """\
tests:
  - id: greeting
    input: Say hello.
    fixtures: {output: Hello!}
    assertions: [{type: contains, value: Hello}]
"""


def imported_modules(arguments: list[str]) -> set[str]:
    """Return the top-level modules that a command imports, as `-X importtime` tells."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    modules = re.findall(r"^import time:.*\| +([\w.]+)$", ended.stderr, flags=re.MULTILINE)
    return {name.partition(".")[0] for name in modules}


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure the smallest commands.")
    parser.add_argument("--rounds", type=int, default=7, help="of which the median counts")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="evalcore-bench-") as folder:
        suite, store = Path(folder, "one.eval.yaml"), Path(folder, "store")
        suite.write_text(ONE_CASE, "utf-8")
        run_arguments = ["run", str(suite), "--store", str(store)]

        def run() -> Measured:
            return run_measured([EVALCORE, *run_arguments])

        def imports() -> Measured:
            return run_measured([sys.executable, "-c", "import duckdb, pydantic, yaml"])

        def show_help() -> Measured:
            return run_measured([EVALCORE, "--help"])

        ran, imported, helped = in_turn(run, imports, show_help, rounds=options.rounds)
        unwanted = {
            name: sorted(imported_modules(arguments) & set(UNWANTED))
            for name, arguments in (("run", run_arguments), ("--help", ["--help"]))
        }
    rows = make_rows(ran, imported, helped)
    text = table(("what", "seconds", "bound", "ratio", "bound", "peak memory"), rows)
    print(text)
    for name, modules in unwanted.items():
        if modules:
            print(f"`evalcore {name}` imports {', '.join(modules)}", file=sys.stderr)
    about = (
        f"## Start\n\n`uv run python -m benchmarks.startup`, median of {options.rounds}, "
        f"{machine()}.\n\n"
    )
    write_section("startup", about + text)
    return 1 if any(row.missed for row in rows) or any(unwanted.values()) else 0


def make_rows(ran: Measured, imported: Measured, helped: Measured) -> list[Row]:
    """Return the lines of the table with the bounds that they miss."""
    ratio = ran.seconds / imported.seconds
    missed = [f"{ratio:.2f}× > {RATIO}×"] if ratio > RATIO else []
    if ran.seconds >= RUN_S:
        missed.append(f"{ran.seconds:.2f} s ≥ {RUN_S} s")
    slow_help = f"{helped.seconds:.2f} s ≥ {HELP_S} s" if helped.seconds >= HELP_S else ""
    return [
        Row(
            (
                "`evalcore run`, one case",
                f"{ran.seconds:.2f}",
                f"{RUN_S}",
                f"{ratio:.2f}×",
                f"{RATIO}×",
                f"{ran.peak_mb:.0f} MB",
            ),
            ", ".join(missed),
        ),
        Row(
            ("`import duckdb, pydantic, yaml`", f"{imported.seconds:.2f}", "–", "1×", "–",
             f"{imported.peak_mb:.0f} MB"),
            "",
        ),
        Row(
            ("`evalcore --help`", f"{helped.seconds:.2f}", f"{HELP_S}", "–", "–",
             f"{helped.peak_mb:.0f} MB"),
            slow_help,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
