"""A project that was deployed to the tests' Prefect server, and the worker that serves it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from evalcore.cli.main import call
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.prefect_server import PROCESSES, PrefectServer
from tests.support.servers import running

EVALCORE = str(Path(sys.executable).with_name("evalcore"))
LEASE_S = 1.0


class Ended(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


@dataclass(frozen=True)
class Project:
    """A folder with two suites, `good` and `bad`; nothing of evalcore's.

    `printed` is what the first `evalcore deploy` said.
    """

    folder: Path
    printed: Ended

    @property
    def log(self) -> str:
        """The end of what the worker and its flow runs have logged."""
        return (self.folder / "worker.log").read_text()[-8000:]

    def runs(self, store: str = "store") -> list[str]:
        """Return the suites of the runs in a store below the folder."""
        found = list_runs(open_store(str(self.folder / store)))
        return sorted(manifest.suite for manifest in found)


@pytest.fixture(scope="session")
def project(running_prefect: PrefectServer, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project, deployed by a process of its own; all modules share it."""
    from tests.support.prefect_runs import write_suite  # imports Prefect

    folder = tmp_path_factory.mktemp("project")
    write_suite(folder, "hello", name="good")
    write_suite(folder, "hello", "goodbye", name="bad")
    ended = subprocess.run(
        [EVALCORE, "deploy"],
        env=running_prefect.environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Project(folder, Ended(ended.stdout, ended.stderr))


@pytest.fixture(scope="session")
def working(
    pytestconfig: pytest.Config,
    running_prefect: PrefectServer,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Project]:
    """The project with a worker, whose flow runs may import `shared_target` from its folder.

    They may be asked to use any store of the tests.
    """
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "evalcore"]
    more = {
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "EVALCORE_ALLOW_COMMANDS": "1",
        "EVALCORE_ALLOW_IMPORTS": "shared_target",
        "EVALCORE_ALLOW_STORES": str(tmp_path_factory.getbasetemp()),
        "EVALCORE_LEASE_S": str(LEASE_S),
        "EVALCORE_STORE": "store",
        "PYTHONPATH": os.pathsep.join([str(project.folder), *sys.path[:1]]),
    }
    environment = running_prefect.environment | more
    log = project.folder / "worker.log"
    with running(command, environment, log) as worker:
        pytestconfig.stash[PROCESSES].append(worker.pid)
        yield project


@pytest.fixture
def soon_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let task runs of this process whose store failed be tried again at once."""
    from evalcore.prefect.tasks import execute_shard  # imports Prefect

    monkeypatch.setattr(execute_shard, "retry_delay_seconds", [0.1])


@pytest.fixture(scope="module")
def deployed(prefect: PrefectServer, project: Project) -> Project:
    """The project with its deployments as they were first, whatever other modules made of them."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for each in client.read_deployments():
            client.delete_deployment(each.id)
    deploy(project.folder)
    return project


def deploy(folder: Path, *arguments: str, code: int = 0) -> Ended:
    """Call the command in this process, where Prefect is imported already."""
    out, err = io.StringIO(), io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with contextlib.chdir(folder), streams[0], streams[1]:
        ended = call(["deploy", *arguments])
    assert ended == code, out.getvalue() + err.getvalue()
    return Ended(out.getvalue(), err.getvalue())


def prefect_command(server: PrefectServer, *arguments: str, cwd: Path | None = None) -> str:
    """Run the real `prefect` to its end; return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
        env=server.environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
