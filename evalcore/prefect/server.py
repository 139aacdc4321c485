"""Prefect's server: its settings, the configured one, and the embedded one.

`configure` comes before anything of Prefect is imported, which reads the environment then; so this
module imports Prefect in its functions.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from evalcore.errors import UsageError
from evalcore.trust.watchdog import MARK_NAME, watchdog

# For this process and the server that it may start; what the user set stays. The batches let the
# server record two to three times as many task runs.
_SETTINGS: Final = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # Else each event of a server that is gone is printed whole.
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
}
_APP: Final = "prefect.server.api.server:create_app"
_START_S: Final = 120.0
_ANSWER_S: Final = 5.0
# How many ports are tried, should another program take them first.
_PORTS: Final = 5
_WORDS_BYTES: Final = 65_536
# What it says is shown if it does not start.
_LEVELS: Final = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_INTERNAL_LOGGING_LEVEL")
# The last line of a traceback.
_REASON: Final = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b")


def configure() -> None:
    """Configure Prefect, which reads the environment when it is imported.

    It asks for the user's home directory then, also where PREFECT_HOME is given. Raises
    `UsageError` if there is neither.
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
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


def reach_server() -> Callable[[], bool]:
    """Return what asks whether the server answers, which it does now.

    The embedded one is started if none is configured. Raises `UsageError` if it does not answer.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    try:
        if url is None:
            start_embedded_server()
        with get_client(sync_client=True) as client:
            failure = client.api_healthcheck()
            address = f"{client.api_url}".rstrip("/")
    except Exception as error:  # noqa: BLE001  (Prefect's own, of many types)
        failure = error
    if failure is None:
        return lambda: answers(f"{address}/health")
    if url is None:
        settings = get_current_settings()
        database = str(settings.server.database.connection_url or "").partition("@")[2]
        raise UsageError(
            f"Prefect's embedded server does not start: {failure}. Its data is in PREFECT_HOME, "
            f"{settings.home}{database and f', its database at {database}'}: make that a folder "
            "that can be written, or name another one; a database of a newer Prefect needs that "
            "version, or another home"
        )
    raise UsageError(
        f"Prefect's server at {url} does not answer ({type(failure).__name__}: {failure}); start "
        "it with `prefect server start`, or unset PREFECT_API_URL to use the embedded one"
    )


def answers(url: str) -> bool:
    """Whether a GET of this address has status 200 within 5 s."""
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as response:  # noqa: S310 - Prefect's own API
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def start_embedded_server() -> None:
    """Start the one embedded server that Prefect's clients in this process share.

    Prefect's own `start` takes every early end for a port that is taken, and tries without end.
    This one returns when the server answers, and raises `RuntimeError` with its last words if it
    ended. The server has a session of its own, so that the terminal's Ctrl-C does not end it before
    the flow has told it that the run was stopped, and it ends with this process.
    """
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    if server.running:
        return
    deadline = time.monotonic() + _START_S
    for _ in range(_PORTS):
        server.port = server.find_available_port()
        with tempfile.TemporaryFile() as errors:
            server.server_process = process = _run_server(server.port, errors)
            while process.poll() is None:
                if answers(f"{server.api_url}/health"):
                    server.running = True
                    atexit.register(server.stop)
                    return
                if time.monotonic() > deadline:
                    server.stop()
                    raise RuntimeError(f"it does not answer within {_START_S:.0f} s")
                time.sleep(0.1)
            if server.is_port_available(server.port):
                server.stop()
                raise RuntimeError(_last_words(errors))
    server.stop()
    raise RuntimeError("other programs take its ports, 8000 to 8999")


def _run_server(port: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    import prefect
    from prefect.settings import get_current_settings

    folder = str(Path(prefect.__file__).parents[1])
    command = [sys.executable, "-m", "uvicorn", "--app-dir", folder, "--factory", _APP]
    options = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    own = {
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
        MARK_NAME: watchdog().mark,
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
    return reasons[-1] if reasons else "it ended without a word"
