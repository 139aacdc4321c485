"""The observer of a run in this process, as its settings ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalcore.errors import SettingsError
from evalcore.observability.observer import Cover, Observer, Observers, RunScope
from evalcore.settings import Settings, parse_log

if TYPE_CHECKING:
    from evalcore.observability.otel import Telemetry

_INSTALL = "`pip install 'evalcore-pipeline[otel]'` (or `uv sync --extra otel`)"


def open_observer(scope: RunScope, settings: Settings, cover: Cover) -> Observer | None:
    """Return the observer of a run; None without any. Contents pass through `cover`.

    Raises `SettingsError` if OpenTelemetry is asked for and not installed.
    """
    observers: list[Observer] = []
    log = None if settings.log is None else parse_log(settings.log)
    if log is not None:
        from evalcore.observability.log import LogObserver

        observers.append(LogObserver(scope, *log))
    if settings.otel:
        observers.append(
            import_telemetry().observer(scope, cover if settings.otel_content else None)
        )
    if not observers:
        return None
    return observers[0] if len(observers) == 1 else Observers(observers)


def import_telemetry() -> Telemetry:
    """Return the process's telemetry; raise `SettingsError` if what it needs is not installed."""
    try:
        from evalcore.observability.otel import telemetry
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"EVALCORE_OTEL: {error.name} is not installed: {_INSTALL}; EVALCORE_OTEL=0 "
            "switches OpenTelemetry off"
        ) from error
    return telemetry()
