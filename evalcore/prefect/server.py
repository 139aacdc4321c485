"""How a command configures Prefect and reaches its server, and what stands in the way of it.

Nothing of Prefect is imported before `configure`.
"""

from __future__ import annotations

import os
from pathlib import Path

from evalcore.errors import UsageError

# For this process and the server that it may start; what the user set stays. The batches let the
# server record two to three times as many task runs.
_SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # Else each event of a server that is gone is printed whole.
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    # A server that is gone must not hold up the end of a run for minutes.
    "PREFECT_CLIENT_MAX_RETRIES": "3",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
}


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


def reach_server() -> None:
    """Return once the server answers; the embedded one is started if none is configured.

    Raises `UsageError`.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if url is None:
        from evalcore.prefect.embedded_server import DetachedServer

        DetachedServer()
    try:
        with get_client(sync_client=True) as client:
            failure = client.api_healthcheck()
    except Exception as error:  # noqa: BLE001  (Prefect's own, of many types)
        failure = error
    if failure is None:
        return
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
