"""What Prefect runs survive: a server that restarts or dies, and flow runs that are disturbed.

    uv run python -m benchmarks.prefect_faults [--tries N] [--faults NAME,…] [--seed N] [--dry]

A try is a run of 120 items of 30 ms. Of `server restarts` and `server dies` the run is that of
`evalcore run --prefect`, whose server ends at a random moment, for some seconds or for good. Of the
others it is the deployment's on a worker: its flow run is cancelled, killed, killed and then
retried by Prefect, or triggered twice at once. A run survives if its report, after `--resume` where
a person would resume it, is that of an undisturbed run. Exit code 1 if one does not survive.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings
from prefect.states import AwaitingRetry, Cancelling

from benchmarks.measure import EVALCORE, Row, machine, table, write_section
from evalcore.model.run import Manifest
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.prefect_server import PrefectServer, clean_environment, prefect_server
from tests.support.reports import stable_report
from tests.support.servers import free_port

_DEPLOYMENT: Final = "evaluate/on-demand"
_ENDS_S: Final = 240.0
_WORKER_ENDS_S: Final = 30
_NO_SERVER: Final = 2
# Prefect's worker looks at a process that has ended once more, on a loaded machine half a minute
# later, and would end a retry that has begun.
_WORKER_LOOKS: Final = "prefect.flow_runs.worker - "


ITEMS: Final = 120
LATENCY_MS: Final = 30


def write_suite(folder: Path) -> None:
    """Write the suite: a target that answers after the latency; a seventh of the cases fails."""
    target = f"{{name: slow, provider: mock, response: hello, latency_ms: {LATENCY_MS}}}"
    (folder / "faults.eval.yaml").write_text(
        "name: faults\n"
        f"targets: [{target}]\n"
        "execution: {target: slow, workers: 4}\n"
        "assertions: [{type: contains, value: hello}]\n"
        "tests: cases.jsonl\n"
    )
    lines = (
        {"id": f"c{number}", "input": "x", "assertions": [{"type": "contains", "value": text}]}
        for number in range(ITEMS)
        for text in ["hello" if number % 7 else "goodbye"]
    )
    (folder / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    """Deploy the flows and run a worker of Prefect in a folder."""
    more = {"PREFECT_WORKER_QUERY_SECONDS": "1", "EVALCORE_ALLOW_STORES": str(folder)}
    environment = os.environ | more | {"EVALCORE_LEASE_S": "2"}
    deploy = [EVALCORE, "deploy"]
    subprocess.run(deploy, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "evalcore"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_WORKER_ENDS_S)
        except subprocess.TimeoutExpired:  # it waits for a server that is busy
            process.kill()
            process.wait()


class Site(NamedTuple):
    """Where tries are made: the worker's folder, the server's, and the undisturbed report."""

    folder: Path
    server: PrefectServer
    whole: bytes
    random: Random

    def try_folder(self, fault: str, number: int) -> Path:
        """Return the folder of a try, with its suite."""
        folder = self.folder / f"{fault.replace(' ', '-')}-{number}"
        folder.mkdir()
        write_suite(folder)
        return folder


def command_line(folder: Path, *arguments: str) -> list[str]:
    """Return `evalcore run` with the store of a try."""
    return [EVALCORE, "run", *arguments, "--json", "--store", str(folder / "store")]


def report_of(printed: str) -> bytes | None:
    """Return the report that a command printed, without ids and times."""
    lines = printed.splitlines()
    return stable_report(lines[-1]) if lines and lines[-1].startswith("{") else None


def manifests(folder: Path) -> list[Manifest]:
    """Return the runs in the store of a try."""
    return list(list_runs(open_store(str(folder / "store"))))


def resumed(site: Site, folder: Path, count: int = 1) -> str:
    """Resume each run of a try; return what is wrong with its report, "" if nothing is."""
    runs = manifests(folder)
    if len(runs) != count:
        return f"{len(runs)} runs, not {count}"
    for run in runs:
        ended = subprocess.run(
            command_line(folder, "--resume", run.id),
            cwd=folder, capture_output=True, text=True, timeout=_ENDS_S, check=False,
        )  # fmt: skip
        if report_of(ended.stdout) != site.whole:
            return f"exit code {ended.returncode}, another report: {ended.stderr[-300:]}"
    return ""


def wait_until(holds: Callable[[], bool]) -> bool:
    """Wait until a condition holds; whether it did in time."""
    deadline = time.monotonic() + _ENDS_S
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return False


# The server restarts or dies


@contextmanager
def own_server(site: Site, folder: Path) -> Iterator[Callable[[], None]]:
    """Run a server for one try; gives the function that starts it again, once it has ended."""
    home, port = folder / "prefect", free_port()
    site.server.copy_database(home)
    with ExitStack() as stack:

        def start() -> None:
            stack.enter_context(prefect_server(home, port))

        os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
        start()
        yield start
    os.environ["PREFECT_API_URL"] = site.server.url


def server_disturbed(site: Site, folder: Path, *, restarts: bool) -> str:
    """Kill the server under `evalcore run --prefect`, and start it again or not."""
    with own_server(site, folder) as start:
        with (folder / "out.txt").open("w") as out, (folder / "err.txt").open("w") as err:
            run = subprocess.Popen(
                command_line(folder, "faults.eval.yaml", "--prefect"),
                cwd=folder, stdout=out, stderr=err, env=os.environ | {"EVALCORE_STALL_S": "10"},
            )  # fmt: skip
        try:
            wait_until(lambda: bool(manifests(folder)) or run.poll() is not None)
            time.sleep(site.random.uniform(0, 2))
            port = os.environ["PREFECT_API_URL"].rsplit(":", 1)[1].partition("/")[0]
            kill_all(matching(lambda command, _: port.encode() in command.split(b"\0")))
            if restarts:
                time.sleep(site.random.uniform(0.2, 5))
                start()
            code = run.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            return "hung: " + (folder / "err.txt").read_text()[-300:]
        finally:
            run.kill()
    if code == 1 and report_of((folder / "out.txt").read_text()) == site.whole:
        return ""
    if code == _NO_SERVER:  # it was away when the command looked for it first
        return resumed(site, folder)
    errors = (folder / "err.txt").read_text()[-300:]
    return f"exit code {code}: {errors}; resumed: {resumed(site, folder) or 'the whole report'}"


def matching(fits: Callable[[bytes, Path], bool]) -> list[int]:
    """Return the processes whose command line and folder fit."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if fits((entry / "cmdline").read_bytes(), (entry / "cwd").resolve()):
                processes.append(int(entry.name))
    return processes


def flow_processes(folder: Path) -> list[int]:
    """Return the processes of the flow runs of a worker in a folder."""
    return matching(lambda command, where: b"engine" in command and where == folder)


def kill_all(processes: Iterable[int]) -> None:
    """Kill processes, as a machine that fails does."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


# Flow runs of the deployment


def trigger(folder: Path) -> UUID:
    """Start the deployment on the suite of a try; return the flow run."""
    parameters = {
        "suite": f"{folder.name}/faults.eval.yaml",
        "store": str(folder / "store"),
    }
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(_DEPLOYMENT)
        return client.create_flow_run_from_deployment(deployment.id, parameters=parameters).id


def has_ended(flow_run: UUID, runs: int = 1) -> bool:
    """Whether a flow run is in a final state, after it was begun so many times."""
    with get_client(sync_client=True) as client:
        current = client.read_flow_run(flow_run)
    return (
        current.state is not None and current.state.is_final() and (current.run_count or 0) >= runs
    )


def begin(site: Site, folder: Path) -> UUID:
    """Trigger the deployment and wait for a random moment of its run."""
    flow_run = trigger(folder)
    wait_until(lambda: bool(manifests(folder)))
    time.sleep(site.random.uniform(0, 0.9))
    return flow_run


def cancelled(site: Site, folder: Path) -> str:
    """Cancel the flow run, as the button does, and resume its run."""
    flow_run = begin(site, folder)
    if not has_ended(flow_run):  # else there is no button
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(flow_run, Cancelling())
    if not wait_until(lambda: has_ended(flow_run)):
        return "the cancelled flow run does not end"
    return resumed(site, folder)


def killed(site: Site, folder: Path) -> str:
    """Kill the processes of the flow run, and resume its run."""
    flow_run = begin(site, folder)
    kill_all(flow_processes(site.folder))
    if not wait_until(lambda: has_ended(flow_run)):
        return "the killed flow run does not end"
    return resumed(site, folder)


def retried(site: Site, folder: Path) -> str:
    """Kill the processes of the flow run, and have Prefect retry it; nothing is resumed."""
    flow_run = begin(site, folder)
    log = site.folder / "worker.log"
    looks = log.read_text("utf-8").count(_WORKER_LOOKS)
    kill_all(flow_processes(site.folder))
    if not wait_until(lambda: has_ended(flow_run)):
        return "the killed flow run does not end"
    wait_until(lambda: log.read_text("utf-8").count(_WORKER_LOOKS) > looks)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run, AwaitingRetry(), force=True)
    if not wait_until(lambda: has_ended(flow_run, 2)):
        return "the retried flow run does not end"
    # Killed between planning and the labels that name the run, it makes a run of its own
    # (docs/decisions/0041); the planned one stays, and is resumed here.
    states = [str(run.state) for run in manifests(folder)]
    if "completed" not in states:
        return f"the runs are {states}"
    return resumed(site, folder, len(states))


def triggered_twice(site: Site, folder: Path) -> str:
    """Trigger the deployment twice at once: two runs, each whole."""
    both = (trigger(folder), trigger(folder))
    if not wait_until(lambda: all(has_ended(flow_run) for flow_run in both)):
        return "the flow runs do not end"
    states = [run.state for run in manifests(folder)]
    return resumed(site, folder, 2) if states == ["completed"] * 2 else f"the runs are {states}"


FAULTS: Mapping[str, Callable[[Site, Path], str]] = {
    "server restarts": lambda site, folder: server_disturbed(site, folder, restarts=True),
    "server dies": lambda site, folder: server_disturbed(site, folder, restarts=False),
    "flow run cancelled": cancelled,
    "flow run killed": killed,
    "flow run retried": retried,
    "triggered twice at once": triggered_twice,
}


def undisturbed(folder: Path) -> bytes:
    """Return the report of a run in one process without any fault."""
    folder.mkdir()
    write_suite(folder)
    ended = subprocess.run(
        command_line(folder, "faults.eval.yaml"),
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = report_of(ended.stdout)
    if report is None:
        raise SystemExit(f"an undisturbed run ended with {ended.returncode}: {ended.stderr}")
    return report


def row_of(site: Site, fault: str, tries: int) -> Row:
    """Make the tries of one fault; return its line of the table."""
    survived = 0
    for number in range(tries):
        wrong = FAULTS[fault](site, site.try_folder(fault, number))
        survived += not wrong
        print(f"{fault}, try {number}: {wrong or 'survived'}", file=sys.stderr, flush=True)
    return Row(
        (fault, f"{tries}", f"{survived}"), "" if survived == tries else f"{tries - survived} lost"
    )


def main() -> int:
    """Make the tries, print the table, write it into RESULTS.md; 1 if one did not survive."""
    parser = argparse.ArgumentParser(description="Disturb Prefect under runs.")
    parser.add_argument("--tries", type=int, default=10, help="of each fault")
    parser.add_argument("--faults", default=",".join(FAULTS), help="of: " + ", ".join(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="evalcore-bench-") as name, ExitStack() as stack:
        folder, home = Path(name).resolve(), Path(name).resolve() / "prefect"
        os.environ |= clean_environment(home)
        server = stack.enter_context(prefect_server(home))
        server.keep_new_database()
        os.environ |= server.environment
        # This process has read its settings already; else it would start a server of its own.
        prefect_settings = {PREFECT_API_URL: server.url, PREFECT_HOME: home}
        stack.enter_context(temporary_settings(prefect_settings))
        stack.enter_context(worker(folder))
        site = Site(folder, server, undisturbed(folder / "whole"), Random(options.seed))
        rows = [row_of(site, fault.strip(), options.tries) for fault in options.faults.split(",")]
    text = table(("fault", "tries", "survived"), rows)
    print(text)
    about = (
        "## Faults of Prefect\n\n"
        f"`uv run python -m benchmarks.prefect_faults --seed {options.seed}`, "
        f"120 items of 30 ms, compared with the undisturbed report, {machine()}.\n\n"
    )
    if not options.dry:
        write_section("prefect-faults", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
