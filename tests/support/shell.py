"""Run the real command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.fork_server import PROGRAM, is_alike, run_forked

ROOT = Path(__file__).resolve().parents[2]
CONFORMANCE = ROOT / "tests" / "conformance"

# What may differ between two runs of the same plan (docs/reference/report.md).
VOLATILE = ("run", "summary")

Json = dict[str, Any]

# For suites whose Python is not what is tested: a worker process of its own costs half a second.
INLINE = {"EVALCORE_ISOLATION": "inline"}


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Json]:
        """Return standard output as JSON lines; anything else in it is an error."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def report(self) -> Json:
        """Return the one report on standard output."""
        (report,) = self.lines
        return report


def environment(store: str | Path | None = None, **more: str) -> dict[str, str]:
    """Return this process's environment with nothing of evalcore's in it but `store`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVALCORE_")}
    if store is not None:
        kept["EVALCORE_STORE"] = str(store)
    return kept | more


def evalcore(
    *arguments: str | Path,
    store: str | Path | None = None,
    stdin: str = "",
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    forked: bool = True,
) -> Ended:
    """Run `evalcore` with these arguments to its end, in a process of its own.

    With `forked` false it is the installed program, whatever the environment.
    """
    complete = environment(store, **(env or {}))
    command = [*map(str, arguments)]
    if forked and is_alike(complete):
        return Ended(
            *run_forked(command, cwd=cwd, environment=complete, stdin=stdin, timeout_s=300)
        )
    ended = subprocess.run(
        [PROGRAM, *command],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env=complete,
        timeout=300,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def start(
    *arguments: str | Path,
    store: str | Path,
    cwd: Path,
    out: Path,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `evalcore` in a process group of its own; both of its outputs go to the file `out`."""
    with out.open("wb") as file:
        return subprocess.Popen(
            [PROGRAM, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=cwd,
            env=environment(store, **(env or {})),
            start_new_session=True,
        )


def comparable(report: Json) -> Json:
    """Return a report without what may differ between two runs of the same plan."""
    kept = {key: value for key, value in report.items() if key not in VOLATILE}
    kept["cases"] = [
        {
            **case,
            "items": [
                {key: value for key, value in item.items() if key != "metrics"}
                for item in case["items"]
            ],
        }
        for case in report["cases"]
    ]
    return kept
