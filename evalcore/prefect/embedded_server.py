"""Prefect's embedded server as a process that hears no Ctrl-C and ends with this process."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import prefect
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings

from evalcore.trust.watchdog import MARK_NAME, watchdog

_APP = "prefect.server.api.server:create_app"
_START_S = 120
# How many ports are tried, should another program take them first.
_PORTS = 5
_WORDS_BYTES = 65_536
# What it says is shown if it does not start.
_LEVELS = ("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_INTERNAL_LOGGING_LEVEL")
# The last line of a traceback.
_REASON = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b")


def _answers(url: str) -> bool:
    try:
        with httpx.Client(trust_env=False, verify=False, timeout=1.0) as client:  # noqa: S501 - plain HTTP
            return client.get(url).status_code == 200
    except httpx.HTTPError:
        return False


class DetachedServer(SubprocessASGIServer):
    """An embedded server in a session of its own.

    The terminal's Ctrl-C would end Prefect's own before the flow has told it that the run was
    stopped, and a process that is killed would leave it behind.

    Prefect keeps one embedded server for a process: it is this one if it is made before Prefect's
    client has started one.
    """

    def start(self, timeout: int | None = None) -> None:
        """Return when the server answers; raise `RuntimeError` with its last words if it ended.

        Prefect's own takes every early end for a port that is taken, and tries without end.
        """
        if self.running:
            return
        deadline = time.monotonic() + (timeout or _START_S)
        for _ in range(_PORTS):
            self.port = self.find_available_port()
            self.server_process = self._run_uvicorn_command()
            while self.server_process.poll() is None:
                if _answers(f"{self.api_url}/health"):
                    self.running = True
                    atexit.register(self.stop)
                    return
                if time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"it does not answer within {timeout or _START_S} s")
                time.sleep(0.1)
            if self.is_port_available(self.port):
                break
        raise RuntimeError(self._last_words())

    def _last_words(self) -> str:
        """Return the reason in the last traceback or message of the server that ended."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _WORDS_BYTES))
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        reasons = [line for line in lines if _REASON.match(line)] or [
            line for line in lines if line
        ]
        return reasons[-1] if reasons else "it ended without a word"

    def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
        folder = str(Path(prefect.__file__).parents[1])
        command = [sys.executable, "-m", "uvicorn", "--app-dir", folder, "--factory", _APP]
        options = ["--host", "127.0.0.1", "--port", str(self.port)]
        quiet = ["--log-level", "error", "--lifespan", "on"]
        own = {
            "PREFECT_UI_ENABLED": "0",
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
            MARK_NAME: watchdog().mark,
        }
        settings = get_current_settings().to_environment_variables(exclude_unset=True)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the server
        process = subprocess.Popen(
            [*command, *options, *quiet],
            env=os.environ | own | settings | dict.fromkeys(_LEVELS, "ERROR"),
            start_new_session=True,
            stderr=self._errors,
        )
        watchdog().began(process.pid)
        return process
