"""Prefect's embedded server as a process that hears no Ctrl-C and ends with this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import prefect
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings

from evalcore.trust.watchdog import MARK_NAME, watchdog

_APP = "prefect.server.api.server:create_app"


class DetachedServer(SubprocessASGIServer):
    """An embedded server in a session of its own.

    The terminal's Ctrl-C would end Prefect's own before the flow has told it that the run was
    stopped, and a process that is killed would leave it behind.

    Prefect keeps one embedded server for a process: it is this one if it is made before Prefect's
    client has started one.
    """

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
        process = subprocess.Popen(
            [*command, *options, *quiet], env=os.environ | own | settings, start_new_session=True
        )
        watchdog().began(process.pid)
        return process
