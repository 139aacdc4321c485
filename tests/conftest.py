"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, settings

from evalcore.redaction.redactor import PROCESS
from tests.support.postgresql import database, shared_postgresql  # noqa: F401  (fixtures)
from tests.support.prefect_project import (  # noqa: F401  (fixtures)
    deployed,
    project,
    soon_retried,
    working,
)
from tests.support.prefect_server import (  # noqa: F401  (fixtures)
    GROUP,
    PROCESSES,
    new_prefect_database,
    prefect,
    running_prefect,
    signal_group,
)
from tests.support.servers import S3Server, s3_server
from tests.support.service import Service, service


def pytest_configure(config: pytest.Config) -> None:
    """Let processes that tests start be interrupted, even where the tests run in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _trust_few_authorities(config)
    # An example that takes long says something of the machine, and nothing of the code.
    settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")


def _trust_few_authorities(config: pytest.Config) -> None:
    """Give this process and its children a single certificate authority instead of 150.

    Each client of Prefect and each import of aiohttp reads all of them, in 40 to 80 ms; no test
    asks a server beyond this machine.
    """
    if "SSL_CERT_FILE" in os.environ:
        return
    end = "-----END CERTIFICATE-----\n"
    first, separator, _ = Path(certifi.where()).read_text("ascii").partition(end)
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(first + separator)
    os.environ["SSL_CERT_FILE"] = file.name
    config.add_cleanup(Path(file.name).unlink)


_ALL_EXTENDED = re.compile(r"^pytestmark = \[[^\]]*mark\.extended", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of `extended` tests alone: importing them takes longer than reading them.

    Each of the test processes collects all tests.
    """
    if config.option.markexpr != "not extended" or collection_path.suffix != ".py":
        return None
    return True if _ALL_EXTENDED.search(collection_path.read_text("utf-8")) else None


def pytest_collection(session: pytest.Session) -> None:
    """Collect without the garbage collector, which visits all imports repeatedly."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was collected out of the garbage collector's sight."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def plan_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's own key for the tests and for the processes that they start; and their cache."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield folder / "evalcore" / "plan.key"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a server or a store in one of pytest's processes.

    Else each process would make what one of them can make for all. Prefect's server and worker are
    shared by the modules that deploy a project; the other modules share a second server.
    """
    fixtures: dict[Path, set[str]] = {}
    for item in items:
        fixtures.setdefault(item.path, set()).update(getattr(item, "fixturenames", ()))
    for item in items:
        if item.path.stem == "test_dev":
            item.add_marker(pytest.mark.xdist_group("dev"))
        elif "running_prefect" in fixtures[item.path]:
            name = f"{GROUP}-worker" if "project" in fixtures[item.path] else GROUP
            item.add_marker(pytest.mark.xdist_group(name))
        elif _uses_fixture_of_module(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Let Prefect's server and worker sleep after the last test of a group: idle, they take 7 % of
    a core.
    """
    sleepers = item.config.stash.setdefault(PROCESSES, []) if _is_of_prefect(item) else []
    for group in sleepers:
        signal_group(group, signal.SIGCONT)
    result = yield
    if not (nextitem and _is_of_prefect(nextitem)):
        for group in sleepers:
            signal_group(group, signal.SIGSTOP)
    return result


def _is_of_prefect(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("xdist_group")
    return mark is not None and str(mark.args[0]).startswith(GROUP)


def _uses_fixture_of_module(item: pytest.Item) -> bool:
    """Return whether a fixture that the test uses is made once for its module."""
    if not isinstance(item, pytest.Function):
        return False
    module = item.nodeid.partition("::")[0]
    return any(
        definition.scope == "module" and definition.baseid == module
        for definitions in item._fixtureinfo.name2fixturedefs.values()
        for definition in definitions
    )


@pytest.fixture(autouse=True)
def _nothing_learned() -> Iterator[None]:
    """Let no test's secrets be covered in another's."""
    PROCESS.forget()
    yield
    PROCESS.forget()


@pytest.fixture(scope="session")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One process of the service without tokens, for all modules of the group `service`."""
    with service(tmp_path_factory.mktemp("service"), "--rate", "0") as running:
        yield running


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Server]:
    """One S3 server per test process: it starts in under a second."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(running_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, reachable through the environment (for child processes, too)."""
    for name, value in running_s3.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return running_s3
