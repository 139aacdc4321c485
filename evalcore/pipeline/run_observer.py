"""Who is told of a run in this process: the configured observer, and standard error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.errors import SettingsError
from evalcore.model.run import Manifest, State
from evalcore.observability.events import Observer, Observers, RunEnded, RunScope
from evalcore.redaction.redactor import PROCESS
from evalcore.settings import parse_log, read_settings

if TYPE_CHECKING:
    from evalcore.model.exchange import Endpoint
    from evalcore.observability.otel import Telemetry
    from evalcore.recording.redaction import Redaction


def observer_of(manifest: Manifest) -> Observer | None:
    """Return the observer of a run in this process; None without one."""
    settings = read_settings(os.environ, Path.cwd())
    if settings.log is None and not settings.otel:
        return None
    redaction: Redaction | None = None

    def cover(value: Any, endpoint: Endpoint | None) -> Any:
        nonlocal redaction
        if redaction is None:
            from evalcore.recording.redaction import Redaction

            redaction = Redaction.of_process(os.environ, settings.redact_patterns)
        whole = redaction if endpoint is None else redaction.knowing(endpoint)
        return whole.value(value)

    scope = RunScope(manifest.id, manifest.suite, manifest.mode)
    observers: list[Observer] = []
    log = None if settings.log is None else parse_log(settings.log)
    if log is not None:
        from evalcore.observability.log import LogObserver

        observers.append(LogObserver(scope, *log))
    if settings.otel:
        covered = cover if settings.otel_content else None
        observers.append(_import_telemetry().observer(scope, covered))
    return Observers(observers) if observers else None


def _import_telemetry() -> Telemetry:
    """Return the process's telemetry; raise `SettingsError` if what it needs is not installed."""
    try:
        from evalcore.observability.otel import telemetry
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"EVALCORE_OTEL: {error.name} is not installed: `pip install "
            "'evalcore-pipeline[otel]'` (or `uv sync --extra otel`); EVALCORE_OTEL=0 "
            "switches OpenTelemetry off"
        ) from error
    return telemetry()


def check_observers() -> None:
    """Raise `SettingsError` if an observer cannot be opened, before a run is begun."""
    if read_settings(os.environ, Path.cwd()).otel:
        _import_telemetry()


def tell_end(manifest: Manifest, cost_usd: float | None = None) -> None:
    """Tell that a run is decided, or was stopped."""
    observer = observer_of(manifest)
    if observer is None:
        return
    observer.tell(
        RunEnded(
            state=manifest.state,
            decision=manifest.decision,
            created_at=manifest.created_at,
            ended_at=manifest.ended_at or manifest.created_at,
            counts={name: int(number) for name, number in (manifest.counts or {}).items()},
            cost_usd=cost_usd,
        )
    )


def tell_stop(manifest: Manifest) -> None:
    """Tell that a run was stopped, unless another process completed it."""
    if manifest.state is State.CANCELLED:
        tell_end(manifest)


def warn_on_standard_error(message: str) -> None:
    """Write a warning to standard error, without secrets and without control characters."""
    from evalcore.trust.text import sanitize_terminal

    sys.stderr.write(f"{sanitize_terminal(PROCESS.message(message))}\n")
