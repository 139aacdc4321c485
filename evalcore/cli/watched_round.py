"""A round of `evalcore run --watch`, in a process of its own: code is imported as it is now.

`python -c … NOTES run SUITE …` reads the runs before it from the file NOTES, and writes there which
files the run was made from and what differs from the runs before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.opened_files import OpenedFiles
from evalcore.errors import EvalError

if TYPE_CHECKING:
    from evalcore.model.summary import Difference, VariantComparison
    from evalcore.pipeline.finish import RunView

_LISTED: Final = 5


class RoundNotes:
    """What a round leaves for the one after it and for the terminal."""

    def __init__(self, runs: dict[str, str]) -> None:
        self.runs = dict(runs)
        self.lines: list[str] = []

    def add(self, view: RunView) -> None:
        """Note a run and what differs from the suite's run before it."""
        report = view.report
        earlier = self.runs.get(report.suite)
        self.runs[report.suite] = view.run.run_id
        items = report.summary.counts.planned
        reused = sum(int(source["items"]) for source in report.run.reused)
        parts = [f"{items - reused} of {items} items executed"]
        if earlier is not None:
            parts.extend(_differences(view, earlier))
        self.lines.append(f"{report.suite}: {', '.join(parts)}; {report.decision}")


def _differences(view: RunView, earlier: str) -> list[str]:
    from evalcore.pipeline.compare import compare_runs
    from evalcore.storage.runs import find_run

    try:
        comparison = compare_runs(find_run(view.run.store, earlier), view.run).comparison
    except EvalError as error:  # the run before was stopped, or deleted meanwhile
        return [f"not compared ({error})"]
    variants = comparison.variants
    improved = _cases((each for variant in variants for each in variant.improvements), "assertion")
    regressed = _cases((each for variant in variants for each in variant.regressions), "assertion")
    parts = [
        f"{title}: {', '.join(cases[:_LISTED])}" + _more(cases)
        for title, cases in (
            ("passes now", improved),
            ("fails now", regressed),
            ("not measured before", _missing_from("baseline", variants)),
            ("not measured now", _missing_from("candidate", variants)),
        )
        if cases
    ]
    return parts or ["no case differs"]


def _cases(differences: Iterable[Difference], kind: str | None = None) -> list[str]:
    """Return the cases of differences, each once; only those of a kind."""
    return list(dict.fromkeys(each.case for each in differences if kind in {None, each.kind}))


def _missing_from(side: str, variants: Iterable[VariantComparison]) -> list[str]:
    missing = (each for variant in variants for each in variant.missing)
    return _cases(each for each in missing if each.missing_from == side)


def _more(cases: Sequence[str]) -> str:
    return "" if len(cases) <= _LISTED else f" and {len(cases) - _LISTED} more"


def run_round(notes_file: Path, arguments: Sequence[str]) -> int:
    """Run the suites once and write the notes; return the exit code."""
    from evalcore.cli.main import call
    from evalcore.cli.options import settings
    from evalcore.cli.run import run
    from evalcore.settings import repository_root

    notes = RoundNotes(orjson.loads(notes_file.read_bytes())["runs"])
    opened: OpenedFiles | None = None

    def run_once(**flags: Any) -> int:
        nonlocal opened
        from evalcore.cli.running import run_command

        folders = {Path(suite).resolve().parent for suite in flags["suites"]}
        store = flags["store"] or settings().store
        folder = None if "://" in store else Path(store)
        opened = OpenedFiles([Path.cwd(), *map(repository_root, folders)], folder)
        for suite in flags["suites"]:
            opened.note("open", (suite, None, os.O_RDONLY))
        sys.addaudithook(opened.note)
        del flags["watch"]
        return int(run_command({**flags, "reuse": True}, observe=notes.add))

    command = click.Command("run", callback=run_once, params=run.params)
    code = call(arguments, command)
    files, listed = ({}, set()) if opened is None else (opened.files, opened.folders)
    written = {"runs": notes.runs, "lines": notes.lines, "files": files, "folders": sorted(listed)}
    notes_file.write_bytes(orjson.dumps(written))
    return code


def main() -> None:
    """Run a round with the process's arguments and end the process."""
    from evalcore.cli.main import leave
    from evalcore.redaction.redactor import redact_standard_streams

    redact_standard_streams()
    leave(run_round(Path(sys.argv[1]), sys.argv[2:]))
