"""Prefect's server: its settings, the configured one, and the embedded one.

`configure` comes before anything of Prefect is imported, which reads the environment then; so this
module imports Prefect in its functions.
"""

from __future__ import annotations

import atexit
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import warnings
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

from evalcore.errors import UsageError
from evalcore.trust.processes import watchdog

# For this process and the server that it may start; what the user set stays.
# Profile `dev` has the batches, which let the server record two to three times as many task runs.
_PROFILES: Final = Path(__file__).resolve().parent / "data" / "profiles.toml"
_SETTINGS: Final = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # Else each event of a server that is gone is printed whole.
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    # A call of a server that is gone is repeated after 2 and 4 s; by default for a minute.
    "PREFECT_CLIENT_MAX_RETRIES": "2",
    "PREFECT_API_REQUEST_TIMEOUT": "20",
}
_APP: Final = "prefect.server.api.server:create_app"
_START_S: Final = 120.0
_ANSWER_S: Final = 5.0
_LEAVE_S: Final = 5.0
_WORDS_BYTES: Final = 65_536
# What it says is shown if it does not start.
_LEVELS: Final = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_INTERNAL_LOGGING_LEVEL")
# The last line of a traceback.
_REASON: Final = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b")


def configure() -> None:
    """Configure Prefect, which reads the environment when it is imported, and import it.

    It asks for the user's home directory then, also where PREFECT_HOME is given. Raises
    `UsageError` if there is neither, or if its settings cannot be read.
    """
    try:
        Path.home()
    except RuntimeError:
        if not os.environ.get("PREFECT_HOME"):
            raise UsageError(
                "Prefect needs a home directory and this user has none: set HOME or PREFECT_HOME "
                "to a folder that can be written"
            ) from None
        os.environ["HOME"] = str(Path(os.environ["PREFECT_HOME"]).absolute())
    for name, value in (read_profile() | _SETTINGS).items():
        os.environ.setdefault(name, value)
    try:
        # Prefect prints and warns of some faults before it raises them.
        with warnings.catch_warnings(action="ignore"), redirect_stderr(io.StringIO()):
            import prefect.context  # noqa: F401
    except (ValueError, OSError) as error:  # also pydantic's and TOML's
        raise UsageError(
            f"Prefect cannot read its settings (variables PREFECT_…, profiles.toml, prefect.toml, "
            f"pyproject.toml, .env): {_one_line(error)}"
        ) from None


def read_profile() -> dict[str, str]:
    """Return the settings of the profile `dev`, with the batch settings of the server."""
    profile: dict[str, str] = tomllib.loads(_PROFILES.read_text("utf-8"))["profiles"]["dev"]
    return profile


def reach_server(*, embedded: bool = True) -> str:
    """Return the address of the server once it answers; raise `UsageError` if it does not.

    Where none is configured the embedded one is started if it may be.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import (
        PREFECT_CLIENT_MAX_RETRIES,
        get_current_settings,
        temporary_settings,
    )

    if get_current_settings().api.url is None:
        if not embedded:
            raise UsageError(
                "no Prefect server is named: start one with `evalcore dev` or `prefect server "
                "start`, then `export PREFECT_API_URL=http://127.0.0.1:4200/api`"
            )
        start_embedded_server()
    url = f"{get_current_settings().api.url}".rstrip("/")
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True) as client,
        ):
            failure: BaseException | None = client.api_healthcheck()
            if failure is None:
                client.raise_for_api_version_mismatch()
                return url
    except Exception as error:  # noqa: BLE001  (Prefect's own, of many types)
        failure = error.__cause__ or error
    parts = urlsplit(url)
    for address in (f"{url}/api", f"{parts.scheme}://{parts.netloc}/api"):
        if address != url and answers(f"{address}/health"):
            raise UsageError(
                f"PREFECT_API_URL {url} is not the address of Prefect's API: set it to {address}"
            )
    reason = "not Prefect" if isinstance(failure, ValueError) else _one_line(failure)
    if "401" in reason:
        reason = "set PREFECT_API_AUTH_STRING or PREFECT_API_KEY"
    raise UsageError(
        f"Prefect's server at {url} does not answer ({reason}): start it with `prefect server "
        f"start`{', or unset PREFECT_API_URL to use the embedded one' if embedded else ''}"
    )


def answers(url: str) -> bool:
    """Whether a GET of the address of a server's health says `true` within 5 s."""
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as response:  # noqa: S310 - Prefect's own API
            return bool(response.read(100) == b"true")
    except (OSError, ValueError):
        return False


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def start_embedded_server() -> None:
    """Start a server for this process and the processes that it starts, and name it to Prefect.

    Prefect's own (`SubprocessASGIServer`) takes every early end for a port that is taken and tries
    without end, and its import takes seconds. This one returns when the server answers, and raises
    `UsageError` with the reason as soon as it has ended. The server has a session of its own, so
    that the terminal's Ctrl-C does not end it before the flow has told it that the run was stopped,
    and it ends with this process.
    """
    from prefect.context import refresh_global_settings_context

    _require_writable()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/api"
    deadline = time.monotonic() + _START_S
    with tempfile.TemporaryFile() as errors:
        process = _run_server(url, errors)
        atexit.register(_stop, process)
        while not answers(f"{url}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise _unstarted(_last_words(errors))
            time.sleep(0.1)
    os.environ["PREFECT_API_URL"] = url
    refresh_global_settings_context()


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    with suppress(subprocess.TimeoutExpired):  # the watchdog kills it
        server.wait(_LEAVE_S)


def _require_writable() -> None:
    """Raise `UsageError` if the embedded server's folder or its database is read-only.

    A server that finds all tables in such a database starts, and then refuses each call.
    """
    from prefect.settings import get_current_settings

    home = get_current_settings().home
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unstarted(f"{home}: {error.strerror}") from None
    database = Path(_database())
    for path in (home, database) if database.exists() else (home,):
        if not os.access(path, os.W_OK):
            raise _unstarted(f"{path} cannot be written")


def _database() -> str:
    """Return where the embedded server has its database: a file, or a server without its user."""
    from prefect.settings import get_current_settings

    address = get_current_settings().server.database.connection_url
    url = urlsplit(address.get_secret_value() if address else "")
    if url.scheme.startswith("sqlite"):
        return unquote(url.path.removeprefix("/"))
    return f"{url.netloc.rpartition('@')[2]}{url.path}"


def _unstarted(reason: str) -> UsageError:
    from prefect import __version__

    if "Can't locate revision" in reason:
        reason = f"its database was made by a newer Prefect than {__version__}"
    return UsageError(
        f"Prefect's embedded server does not start: {reason}. Its database is {_database()}: make "
        "room and make it writable, or set PREFECT_HOME to another folder or "
        "PREFECT_SERVER_DATABASE_CONNECTION_URL to another server (without --prefect no server is "
        "needed)"
    )


def _run_server(url: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    import prefect
    from prefect.settings import get_current_settings

    folder = str(Path(prefect.__file__).parents[1])
    command = [sys.executable, "-m", "uvicorn", "--app-dir", folder, "--factory", _APP]
    options = ["--host", "127.0.0.1", "--port", str(urlsplit(url).port), "--log-level", "error"]
    own = {
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
    }
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    process = subprocess.Popen(
        [*command, *options, "--lifespan", "on"],
        env=os.environ | own | settings | dict.fromkeys(_LEVELS, "ERROR"),
        start_new_session=True,
        stderr=errors,
    )
    watchdog().began(process.pid)
    return process


def _last_words(errors: IO[bytes]) -> str:
    """Return the reason in the last traceback or message of the server that ended."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _WORDS_BYTES))
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines()]
    reasons = [line for line in lines if _REASON.match(line)] or [line for line in lines if line]
    return reasons[-1] if reasons else f"it is silent for {_START_S:.0f} s"
