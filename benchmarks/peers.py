"""evalcore beside other programs that evaluate: the same work, each at its fastest settings.

    uv run python -m benchmarks.peers [--only NAME …] [--cases N] [--calls N] [--timeout S]

Installs Inspect AI, promptfoo, pydantic-evals, DeepEval and AgentV into throwaway environments
below a cache folder, then measures whole commands (start to results on disk or on standard output),
one after another: given outputs with five checks, and a model of 200 ms. What cannot be installed
or does not end is recorded as such. Exit code 1 if evalcore is not seven times as fast as every
other on given outputs, or not the closest to the ideal on the model.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.latency import LATENCY_S, model_server
from benchmarks.measure import ROOT, machine, write_section
from benchmarks.peer_work import (
    FIXTURES,
    MODEL,
    Command,
    Work,
    agentv_command,
    command_line,
    evalcore_command,
    passed_cases,
    promptfoo_command,
    python_command,
    write_work,
)

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "evalcore-peers"
PLOT = ROOT / "benchmarks" / "peers.png"
CONCURRENCY = 100
FASTER = 7.0


class Peer(NamedTuple):
    """A program: what is installed, from where, and how its command is made."""

    name: str
    registry: str
    packages: tuple[str, ...]
    command: Callable[[Work, Path], Command]


PEERS = (
    Peer("Inspect AI", "pypi", ("inspect-ai", "openai"), partial(python_command, "inspect")),
    Peer("promptfoo", "npm", ("promptfoo",), promptfoo_command),
    Peer(
        "pydantic-evals", "pypi", ("pydantic-evals", "openai"), partial(python_command, "pydantic")
    ),
    Peer("DeepEval", "pypi", ("deepeval", "openai"), partial(python_command, "deepeval")),
    Peer("AgentV", "npm", ("agentv",), agentv_command),
)
OURS = Peer("evalcore", "", (), evalcore_command)


class Outcome(NamedTuple):
    """What came of one command; `seconds` is None if it gave no result, `why` then says why."""

    name: str
    version: str
    kind: str
    seconds: float | None
    peak_mb: float
    why: str
    line: str


def install(peer: Peer) -> tuple[Path, str]:
    """Return the peer's environment and version; raise `OSError` or `CalledProcessError`."""
    home = CACHE / peer.packages[0]
    if peer.registry == "pypi":
        python = home / "bin" / "python"
        if not python.exists():
            _call("uv", "venv", "-q", "--python", "3.11", str(home))
            _call("uv", "pip", "install", "-q", "--python", str(python), *peer.packages)
        program = f"from importlib.metadata import version; print(version('{peer.packages[0]}'))"
        return home, _call(str(python), "-c", program).strip()
    package = home / "node_modules" / peer.packages[0] / "package.json"
    if not package.exists():
        home.mkdir(parents=True, exist_ok=True)
        _call("npm", "install", "--no-audit", "--no-fund", "--prefix", str(home), *peer.packages)
    return home, str(json.loads(package.read_bytes())["version"])


def _call(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=900).stdout


def measure(peer: Peer, work: Work, home: Path, version: str, timeout_s: float) -> Outcome:
    """Run a peer's command once, after its files are written."""
    command = peer.command(work, home)
    line = command_line(command, work.folder, CACHE)
    make = partial(Outcome, peer.name, version, work.kind, line=line)
    stdout, errors = work.folder / "stdout", work.folder / "stderr"
    env = {name: text for name, text in os.environ.items() if not name.startswith("EVALCORE_")}
    began = time.perf_counter()
    with stdout.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env | command.env,
            cwd=command.cwd,
            start_new_session=True,
        )
        peak_mb = 0.0
        while process.poll() is None:
            peak_mb = max(peak_mb, _resident_mb(process.pid))
            if time.perf_counter() - began > timeout_s:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return make(None, peak_mb, f"did not end within {timeout_s:.0f} s")
            time.sleep(0.02)
    seconds = time.perf_counter() - began
    try:
        passed = passed_cases(peer.name, command, stdout.read_text("utf-8", "replace"))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        tail = (errors.read_text(errors="replace") + stdout.read_text(errors="replace")).split("\n")
        last = next((text.strip() for text in reversed(tail) if text.strip()), "nothing")
        return make(None, peak_mb, f"exit code {process.returncode}: {last[:120]}")
    if passed != work.cases:
        return make(None, peak_mb, f"only {passed} of {work.cases} cases passed")
    return make(seconds, peak_mb, command.note)


def _resident_mb(pid: int) -> float:
    """Return a process's resident memory in MB (10⁶ bytes), 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def run_all(options: argparse.Namespace, url: str, folder: Path) -> list[Outcome]:
    """Measure every peer on both kinds of work; evalcore first in each."""
    outcomes: list[Outcome] = []
    works = (
        Work(FIXTURES, options.cases, folder, url, CONCURRENCY),
        Work(MODEL, options.calls, folder, url, CONCURRENCY),
    )
    homes: dict[str, tuple[Path, str] | str] = {}
    for peer in PEERS:
        if options.only and peer.name not in options.only:
            continue
        try:
            homes[peer.name] = install(peer)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            reason = getattr(error, "stderr", None) or str(error)
            homes[peer.name] = f"cannot be installed here: {reason.strip().splitlines()[-1][:120]}"
    for work in works:
        write_work(work)
        shutil.rmtree(folder / "evalcore-store", ignore_errors=True)
        outcomes.append(measure(OURS, work, folder, "this version", options.timeout))
        print(outcomes[-1], file=sys.stderr)
        for peer in PEERS:
            home = homes.get(peer.name)
            if isinstance(home, str):
                outcomes.append(Outcome(peer.name, "–", work.kind, None, 0.0, home, ""))
            elif home is not None:
                outcomes.append(measure(peer, work, *home, options.timeout))
                print(outcomes[-1], file=sys.stderr)
    return outcomes


def missed_bounds(outcomes: Sequence[Outcome]) -> list[str]:
    """Return which bounds evalcore missed."""
    missed = []
    for kind in (FIXTURES, MODEL):
        times = {
            outcome.name: outcome.seconds
            for outcome in outcomes
            if outcome.kind == kind and outcome.seconds
        }
        ours = times.pop(OURS.name, None)
        if ours is None:
            missed.append(f"{kind}: evalcore gave no result")
            continue
        factor = FASTER if kind == FIXTURES else 1.0
        missed += [
            f"{kind}: {name} is {theirs / ours:.2f}× as slow, not {factor:g}×"
            for name, theirs in times.items()
            if theirs < factor * ours
        ]
    return missed


def table_of(outcomes: Sequence[Outcome], kind: str, ideal_s: float | None) -> str:
    """Return the Markdown table of one kind of work."""
    ours = next(
        (
            outcome.seconds
            for outcome in outcomes
            if outcome.kind == kind and outcome.name == OURS.name
        ),
        None,
    )
    lines = [
        f"| program | version | seconds | {'of the ideal' if ideal_s else 'of evalcore'} "
        "| peak memory | remark |",
        "|---|---|---:|---:|---:|---|",
    ]
    for outcome in outcomes:
        if outcome.kind != kind:
            continue
        reference_s = ideal_s or ours
        ratio = f"{outcome.seconds / reference_s:.2f}×" if outcome.seconds and reference_s else "–"
        seconds = f"{outcome.seconds:.1f}" if outcome.seconds else "–"
        memory = f"{outcome.peak_mb:.0f} MB" if outcome.peak_mb else "–"
        cells = (outcome.name, outcome.version, seconds, ratio, memory, outcome.why)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(outcomes: Sequence[Outcome], titles: dict[str, str], ideal_s: float) -> None:
    """Draw the plot in an environment that has matplotlib."""
    home = CACHE / "matplotlib"
    python = home / "bin" / "python"
    if not python.exists():
        _call("uv", "venv", "-q", "--python", "3.11", str(home))
        _call("uv", "pip", "install", "-q", "--python", str(python), "matplotlib")
    groups = [
        {
            "title": title,
            "ideal": ideal_s if kind == MODEL else None,
            "bars": [
                {
                    "name": outcome.name,
                    "seconds": outcome.seconds,
                    "label": f"{outcome.seconds:.1f} s",
                }
                for outcome in outcomes
                if outcome.kind == kind and outcome.seconds
            ],
        }
        for kind, title in titles.items()
    ]
    results = CACHE / "results.json"
    results.write_text(json.dumps(groups))
    _call(
        str(python), str(ROOT / "benchmarks" / "peer_programs" / "plot.py"), str(results), str(PLOT)
    )


def main() -> int:
    """Install, measure, print the tables, write them and the plot; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description="Measure evalcore beside its peers.")
    parser.add_argument("--only", action="append", help="only this peer; repeatable")
    parser.add_argument("--cases", type=int, default=10_000, help="given outputs")
    parser.add_argument("--calls", type=int, default=2_000, help="calls of 200 ms")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one command")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="evalcore-peers-") as name, model_server() as url:
        outcomes = run_all(options, url, Path(name))
    ideal_s = options.calls / CONCURRENCY * LATENCY_S
    titles = {
        FIXTURES: f"{options.cases} given outputs, five checks each",
        MODEL: f"{options.calls} calls of {LATENCY_S * 1000:.0f} ms, {CONCURRENCY} at once",
    }
    lines = "\n".join(
        f"- {outcome.name}, {outcome.kind}: `{outcome.line}`"
        for outcome in outcomes
        if outcome.line
    )
    missed = missed_bounds(outcomes)
    text = (
        "## Peers\n\n`uv run python -m benchmarks.peers`, whole commands one after another in one "
        f"run, {machine()}.\n\n![seconds of each program](peers.png)\n\n"
        f"{titles[FIXTURES]}:\n\n{table_of(outcomes, FIXTURES, None)}\n\n"
        f"{titles[MODEL]} (ideal {ideal_s:.1f} s):\n\n{table_of(outcomes, MODEL, ideal_s)}\n\n"
        f"Missed: {'; '.join(missed) or 'nothing'}.\n\nCommands:\n\n{lines}\n"
    )
    print(text)
    if not options.dry:
        draw(outcomes, titles, ideal_s)
        write_section("peers", text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
