"""How `evalcore run --prefect` starts, and what it says where it cannot."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_HOME,
    PREFECT_SERVER_DATABASE_CONNECTION_URL,
    temporary_settings,
)

from evalcore.errors import UsageError
from evalcore.prefect.server import reach_server, start_embedded_server
from tests.support.prefect_server import clean_environment

_SUITE: Final = """
tests:
  - id: hello
    input: hello
    fixtures: {output: hello}
    assertions: [{type: contains, value: hello}]
"""
# May read all, and write nothing of others.
_NOBODY: Final = (
    *("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
# Limits the size of a file that the server writes, as a full disk does.
_SMALL_FILES: Final = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
os.execv(sys.executable, [sys.executable, "-m", "evalcore", *sys.argv[1:]])
"""


def run_through_prefect(
    folder: Path, environment: dict[str, str], *start: str
) -> subprocess.CompletedProcess[str]:
    """Run a suite of one case that passes; `start` is what calls evalcore."""
    (folder / "suite.eval.yaml").write_text(_SUITE, encoding="utf-8")
    called = start or (sys.executable, "-m", "evalcore")
    return subprocess.run(
        [*called, "run", "--prefect", "--json", "--store", "store", "suite.eval.yaml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_one_message(ended: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Exit code 2, nothing on standard output, one line on standard error with these parts."""
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert [part for part in parts if part not in ended.stderr] == [], ended.stderr


# The embedded server


def test_without_a_server_an_embedded_one_makes_its_home_keeps_the_history_and_ends() -> None:
    """For root as a user whom no passwd file has."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        home = folder / "a" / "b"
        environment = clean_environment(home) | {"OWNER_OF_TEST": name}
        start = (*_NOBODY, sys.executable, "-m", "evalcore") if os.geteuid() == 0 else ()
        ended = run_through_prefect(folder, environment, *start)
        assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0), ended.stderr
        assert orjson.loads(ended.stdout)["counts"]["planned"] == 1
        with contextlib.closing(sqlite3.connect(home / "prefect.db")) as database:
            assert database.execute("SELECT count(*) FROM flow_run").fetchone() == (1,)
    mark = f"OWNER_OF_TEST={name}\0".encode()
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if mark in _read(path)]
    assert left == []


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def not_started(home: Path, database: str = "") -> str:
    """Return why the embedded server does not start with this home and database."""
    chosen: dict[Any, Any] = {PREFECT_HOME: home}
    if database:
        chosen[PREFECT_SERVER_DATABASE_CONNECTION_URL] = database
    with temporary_settings(chosen), pytest.raises(UsageError) as refused:
        start_embedded_server()
    return str(refused.value)


def test_a_database_of_a_newer_prefect_is_named(tmp_path: Path) -> None:
    database = tmp_path / "home" / "prefect.db"
    database.parent.mkdir()
    with contextlib.closing(sqlite3.connect(database)) as opened:
        # Where migrations note how far they are.
        opened.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        opened.execute("INSERT INTO alembic_version VALUES ('ffff')")
        opened.commit()
    told = not_started(database.parent)
    assert [
        each for each in (str(database), "newer Prefect", "PREFECT_HOME") if each not in told
    ] == []


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()
    told = not_started(home)
    assert f"{home}: File exists" in told
    assert "PREFECT_HOME" in told


@pytest.mark.extended
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    start = (sys.executable, "-c", _SMALL_FILES)
    ended = run_through_prefect(tmp_path, clean_environment(home), *start)
    assert_one_message(ended, str(home / "prefect.db"), "make room")


def test_a_database_server_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    address = "postgresql+asyncpg://anna:hidden-word@127.0.0.1:1/prefect"
    told = not_started(tmp_path / "home", address)
    assert "127.0.0.1:1/prefect" in told
    assert "PREFECT_SERVER_DATABASE_CONNECTION_URL" in told
    assert "hidden-word" not in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user's id")
class TestAUserWithoutPasswdEntry:
    """A user id that no passwd file has, as OpenShift gives; it may read all, and write nothing."""

    @pytest.fixture
    def tmp_path(self) -> Iterator[Path]:
        """A folder that anybody may reach; every start of pytest closes its own."""
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)

    def _run(self, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        folder.chmod(0o777)
        start = (*_NOBODY, sys.executable, "-m", "evalcore")
        return run_through_prefect(folder, {"PATH": os.environ["PATH"]} | environment, *start)

    def test_is_told_that_prefect_needs_a_home(self, tmp_path: Path) -> None:
        assert_one_message(self._run(tmp_path), "PREFECT_HOME")

    def test_is_told_of_a_database_that_cannot_be_written(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir()
        (home / "prefect.db").touch(0o444)
        home.chmod(0o777)
        ended = self._run(tmp_path, PREFECT_HOME=str(home))
        assert_one_message(ended, f"{home / 'prefect.db'} cannot be written")


# Settings


@pytest.mark.parametrize(
    ("profiles", "variables", "part"),
    [
        ("", {"PREFECT_API_REQUEST_TIMEOUT": "soon"}, "request_timeout"),
        ("active = [", {}, "profiles.toml"),
    ],
    ids=["variable", "profile"],
)
def test_settings_that_prefect_cannot_read_are_named(
    profiles: str, variables: dict[str, str], part: str, tmp_path: Path
) -> None:
    (tmp_path / "profiles.toml").write_text(profiles, encoding="utf-8")
    ended = run_through_prefect(tmp_path, clean_environment(tmp_path) | variables)
    assert_one_message(ended, "Prefect cannot read its settings", part)


# A server that PREFECT_API_URL names


def unreached(address: str) -> str:
    """Return why the server at an address cannot be used."""
    with temporary_settings({PREFECT_API_URL: address}), pytest.raises(UsageError) as refused:
        reach_server()
    return str(refused.value)


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = b"<html></html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_server() -> Iterator[str]:
    """The address of a server that answers every request with a page."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()


def test_another_server_is_not_taken_for_prefects(other_server: str) -> None:
    told = unreached(other_server)
    assert f"{other_server} does not answer" in told
    assert "not Prefect" in told


def test_a_server_that_is_away_is_named() -> None:
    told = unreached("http://127.0.0.1:1/api")
    assert "http://127.0.0.1:1/api does not answer" in told
    assert "prefect server start" in told


def test_a_server_that_is_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalcore.prefect.server._ANSWER_S", 0.5)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        temporary_settings({PREFECT_API_REQUEST_TIMEOUT: 1}),
    ):
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        told = unreached(address)
    assert f"{address} does not answer" in told
    assert "prefect server start" in told


# The system


def test_windows_is_refused_with_what_would_work() -> None:
    code = (
        "import click, sys; sys.platform = 'win32'\n"
        "sys.modules |= dict.fromkeys(('fcntl', 'resource', 'pwd', 'grp', 'termios'))\n"
        "from evalcore.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert_one_message(ended, "Linux and macOS", "WSL")
