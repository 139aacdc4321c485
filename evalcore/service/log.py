"""Each request in the log and the metrics: by the template of its route, never by its raw path."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

from evalcore.observability.log import log_line
from evalcore.settings import parse_log

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from evalcore.service.metrics import ServiceMetrics

LOG: Final = logging.getLogger("evalcore.service.requests")
_ACCEPTED_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_NO_ROUTE: Final = "unmatched"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FIELDS: Final = "fields"


class RequestLog:
    """ASGI middleware: counts requests, logs a line for each, and echoes its `X-Request-ID`.

    A request without an id, or with one that is no plain word of at most 128 characters, gets a
    new one.
    """

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection; only HTTP requests are noted."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, began = _request_id(scope), time.perf_counter()
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            self._note(scope, request_id, status, time.perf_counter() - began)

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = _route(scope)
        self._metrics.count_request(method, route, status, seconds)
        level = logging.INFO if status < 500 else logging.ERROR
        if LOG.isEnabledFor(level):
            caller = scope.get("state", {}).get("caller")
            fields = {
                "method": method,
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
                "token": None if caller is None else caller.token_id,
                "request_id": request_id,
            }
            LOG.log(level, "request.ended", extra={_FIELDS: fields})


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text: str = value.decode("latin-1")
            if _ACCEPTED_ID.fullmatch(text):
                return text
    return secrets.token_hex(16)


def _route(scope: MutableMapping[str, Any]) -> str:
    """Return the template of the route that has answered."""
    return str(getattr(scope.get("route"), "path", None) or _NO_ROUTE)


class LogLines(logging.Formatter):
    """Writes a record as a line of evalcore's log; its event is a name or `service.message`."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields = getattr(record, _FIELDS, None)
        level = record.levelname.lower()
        if fields is not None:
            return log_line(level, record.getMessage(), fields, as_json=self._as_json)
        fields = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return log_line(level, "service.message", fields, as_json=self._as_json)


def set_up_logging(log: str | None) -> None:
    """Write the service's and its server's log to standard error; JSON unless settings say else."""
    form, level = (None, "info") if log == "off" else parse_log(log or "json") or (None, "info")
    for name in ("evalcore.service", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = False
        handler = logging.NullHandler() if form is None else logging.StreamHandler()
        handler.setFormatter(LogLines(as_json=form == "json"))
        logger.addHandler(handler)
        logger.setLevel(level.upper())
