"""The peak memory of every process of a run, in each way of execution.

    uv run python -m benchmarks.memory [--items N] [--only alone|workers|tasks|lanes]

Given outputs, each case with its own five assertions: in one process, in two workers beside it,
through Prefect as tasks of its embedded server, and in two lanes of a server with a worker. A
process's peak is the kernel's own high-water mark, read until it ends (Linux only). Exit code 1 if
the bound is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.measure import (
    EVALCORE,
    CommandFailedError,
    Row,
    machine,
    table,
    write_section,
)
from benchmarks.throughput import write_cases

MEMORY_MB: Final = 700.0
_LOOK_S: Final = 0.2
_READY_S: Final = 120.0
_PREFECT: Final = str(Path(sys.executable).with_name("prefect"))
_MARK: Final = "EVALCORE_BENCH_MARK"


class Watch:
    """Looks at all processes whose environment has the mark, until it is left."""

    def __init__(self, mark: str) -> None:
        self.peaks: dict[int, tuple[float, str]] = {}
        self._mark = f"{_MARK}={mark}".encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    with contextlib.suppress(OSError, IndexError):  # it has just ended
                        self._note(process)

    def _note(self, process: Path) -> None:
        if self._mark not in (process / "environ").read_bytes().split(b"\0"):
            return
        status = (process / "status").read_text()
        peak_mb = int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
        command = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        before = self.peaks.get(int(process.name), (0.0, ""))[0]
        self.peaks[int(process.name)] = (max(peak_mb, before), role(command))


def role(command: list[str]) -> str:
    """Return what a process of a run is, "" for what is none of evalcore's own work."""
    programs = {Path(word).name for word in command[:2]}
    if "prefect.engine" in command:
        return "flow run"
    if "prefect" in programs:
        return "Prefect's worker" if "worker" in command else ""
    # `evalcore run --workers` starts its workers as `python -c 'from evalcore…' worker`.
    if "evalcore" not in programs and not any("evalcore.cli" in word for word in command):
        return ""
    return "worker" if "worker" in command else "command" if "run" in command else ""


class BenchmarkFolder:
    """A folder with the suite, and an environment that marks every process begun in it."""

    def __init__(self, folder: Path, items: int) -> None:
        self.folder = folder
        self.items = items
        self.suite = folder / "cases.jsonl"
        write_cases(self.suite, items, "own-values")
        own = ("EVALCORE_", "PREFECT_")
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(own)}
        home = {"PREFECT_HOME": str(folder / "prefect"), "DO_NOT_TRACK": "1"}
        self.environment = inherited | home | {_MARK: str(folder)}

    def call(self, *command: str, **more: str) -> None:
        """Run a command to its end."""
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise CommandFailedError(f"{' '.join(command)}: {ended.stdout[-500:]}{ended.stderr}")

    @contextlib.contextmanager
    def serving(self, name: str, *command: str, **more: str) -> Iterator[None]:
        """Run a command beside, and end it and what it has begun."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment | more,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def alone(site: BenchmarkFolder, store: Path) -> None:
    """Run in one process."""
    site.call(EVALCORE, "run", str(site.suite), "--store", str(store))


def workers(site: BenchmarkFolder, store: Path) -> None:
    """Run in two workers beside the command."""
    site.call(EVALCORE, "run", str(site.suite), "--workers", "2", "--store", str(store))


def tasks(site: BenchmarkFolder, store: Path) -> None:
    """Run as tasks through the embedded server."""
    site.call(EVALCORE, "run", "--prefect", str(site.suite), "--store", str(store))


def lanes(site: BenchmarkFolder, store: Path) -> None:
    """Run a deployment in two lanes, served by a worker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    api = f"http://127.0.0.1:{port}/api"
    more = {"PREFECT_API_URL": api, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    parameters = json.dumps({"suite": site.suite.name, "store": str(store), "lanes": 2})
    run = ("deployment", "run", "evaluate/on-demand", "--params", parameters, "--watch")
    with site.serving("server", _PREFECT, "server", "start", "--port", port):
        _wait_for(f"{api}/health")
        site.call(EVALCORE, "deploy", **more)
        with site.serving("worker", _PREFECT, "worker", "start", "--pool", "evalcore", **more):
            site.call(_PREFECT, *run, **more)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise CommandFailedError(f"{url}: no answer within {_READY_S:.0f} s")


WAYS: Final[dict[str, Callable[[BenchmarkFolder, Path], None]]] = {
    "alone": alone,
    "workers": workers,
    "tasks": tasks,
    "lanes": lanes,
}


def measure(site: BenchmarkFolder, way: str) -> Row:
    """Run one way with a new store; return the line of the table."""
    store = site.folder / f"store-{way}"
    began = time.monotonic()
    with Watch(str(site.folder)) as watch:
        WAYS[way](site, store)
    seconds = time.monotonic() - began
    (manifest,) = store.glob("runs/*/*/manifest.json")
    passed = json.loads(manifest.read_bytes())["counts"]["passed"]
    if passed != site.items:
        raise CommandFailedError(f"{way}: only {passed} of {site.items} items passed")
    peaks = sorted((peak, what) for peak, what in watch.peaks.values() if what)
    listed = ", ".join(f"{what} {peak:.0f} MB" for peak, what in reversed(peaks))
    largest = peaks[-1][0]
    missed = f"{largest:.0f} MB ≥ {MEMORY_MB:.0f} MB" if largest >= MEMORY_MB else ""
    return Row((way, f"{seconds:.0f}", listed), missed)


def main() -> int:
    """Measure, print the table, write it into RESULTS.md; 1 if the bound is missed."""
    parser = argparse.ArgumentParser(description="Measure the memory of every process of a run.")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--only", choices=WAYS, action="append", help="repeatable; all by default")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="evalcore-bench-") as name:
        site = BenchmarkFolder(Path(name), options.items)
        try:
            rows = [measure(site, way) for way in options.only or WAYS]
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 1
    text = table(("way", "whole command (s)", "peak memory of each process (< 700 MB)"), rows)
    print(text)
    about = (
        "## Memory of every process\n\n`uv run python -m benchmarks.memory`, "
        f"{options.items:,} given outputs, {machine()}. Prefect's own server needs 210 to 240 MB "
        "besides. Tasks and lanes: with the start of their server.\n\n"
    ).replace(",000", " 000")
    if not options.only:
        write_section("memory", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
