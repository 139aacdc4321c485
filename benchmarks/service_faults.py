"""Kill the service at random moments of a run: alone on SQLite, two replicas on PostgreSQL.

`uv run python -m benchmarks.service_faults`: 20 kills each; 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.measure import Row, machine, table, write_section
from tests.support.postgresql import databases
from tests.support.service_faults import kill_during_run

_CONDITIONS = (
    "Each kill meets a run of 60 children, of which one after another takes 0.25 s; a client saves "
    "evals and starts runs all the time."
)


def _load() -> str:
    minutes = f"{os.getloadavg()[2]:.0f} over the last 15 minutes"
    return f"The load of the machine was {minutes}."


def killed(name: str, address: str, folder: Path, options: argparse.Namespace) -> Row:
    """Return the line of one database."""
    arguments = ["--rate", "0", "--database", address]
    killing = kill_during_run(
        folder,
        arguments,
        address,
        kills=options.kills,
        seed=options.seed,
        replicas=1 if name == "SQLite" else 2,
    )
    cells = (
        name if name == "SQLite" else f"{name}, two replicas",
        str(killing.kills),
        str(killing.runs),
        str(killing.accepted),
        str(len(killing.forgotten)),
        str(len(killing.miscounted)),
        str(len(killing.left_open)),
        str(len(killing.executed_again)),
        str(killing.most_executions),
    )
    return Row(cells, ", ".join(killing.losses[:3]))


def main() -> int:
    """Make the kills, print the table, write it into RESULTS.md; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description="Kill the service during runs.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    rows: list[Row] = []
    for database, address, folder in databases():
        rows.append(killed(database, address, folder, options))
    header = (
        "database",
        "kills",
        "runs that met them",
        "requests accepted",
        "forgotten",
        "runs whose counts do not add up",
        "runs left open in the store",
        "committed children executed again",
        "most executions of a child",
    )
    text = table(header, rows)
    print(text)
    if not options.dry:
        command = "`uv run python -m benchmarks.service_faults`"
        head = f"## Service under kills\n\n{command}, {machine()}.\n"
        write_section("service-faults", f"{head}\n{text}\n\n{_CONDITIONS} {_load()}")
    return int(any(row.missed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
