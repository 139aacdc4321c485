"""The clients: each sends the calls of `evalcore.client.calls`, one blocks and one is awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self, TypeVar

import httpx

from evalcore.client.calls import Call
from evalcore.client.failure import ServiceRefusedError
from evalcore.errors import UsageError
from evalcore.service.models import FINAL, Page

Answer = TypeVar("Answer")
Item = TypeVar("Item")
DEFAULT_URL = "http://127.0.0.1:8321"
_TIMEOUT_S = 60.0
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 2.0
_PAGE = 100


class Client:
    """A client that blocks. Close it, or use it in a `with` statement."""

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        self._http = httpx.Client(base_url=url, headers=_headers(token), timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[Answer]) -> Answer:
        """Return the answer to a call.

        Raises `ServiceRefusedError` for an answer that is not 2xx, `UsageError` without one.
        """
        try:
            answer = self._http.request(**_request(call))
        except httpx.TransportError as error:
            raise _unreachable(self._http.base_url, error) from error
        return _read(call, answer)

    def every(self, page_of: Callable[[dict[str, Any]], Call[Page[Item]]]) -> Iterator[Item]:
        """Yield every row of a list, the newest first; `page_of` makes the call of one page."""
        after: str | None = None
        while True:
            page = self.send(page_of({"limit": _PAGE, "after": after}))
            yield from page.data
            after = page.list_metadata.after
            if after is None:
                return

    def wait(self, call: Call[Answer]) -> Answer:
        """Return what a call answers once its lifecycle is final."""
        wait_s = _FIRST_WAIT_S
        while True:
            resource: Any = self.send(call)
            if resource.lifecycle.status in FINAL:
                ended: Answer = resource
                return ended
            time.sleep(wait_s)
            wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)


class AsyncClient:
    """A client that is awaited. Close it, or use it in an `async with` statement."""

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(token), timeout=_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[Answer]) -> Answer:
        """Return the answer to a call; raises as `Client.send`."""
        try:
            answer = await self._http.request(**_request(call))
        except httpx.TransportError as error:
            raise _unreachable(self._http.base_url, error) from error
        return _read(call, answer)

    async def every(
        self, page_of: Callable[[dict[str, Any]], Call[Page[Item]]]
    ) -> AsyncIterator[Item]:
        """Yield every row of a list, the newest first."""
        after: str | None = None
        while True:
            page = await self.send(page_of({"limit": _PAGE, "after": after}))
            for row in page.data:
                yield row
            after = page.list_metadata.after
            if after is None:
                return

    async def wait(self, call: Call[Answer]) -> Answer:
        """Return what a call answers once its lifecycle is final."""
        wait_s = _FIRST_WAIT_S
        while True:
            resource: Any = await self.send(call)
            if resource.lifecycle.status in FINAL:
                ended: Answer = resource
                return ended
            await asyncio.sleep(wait_s)
            wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _request(call: Call[Any]) -> dict[str, Any]:
    content = call.content()
    headers = {**call.headers}
    if content is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": call.method,
        "url": call.path,
        "params": call.parameters(),
        "content": content,
        "headers": headers,
    }


def _read(call: Call[Answer], answer: httpx.Response) -> Answer:
    if answer.is_success:
        return call.read(answer.content)
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = answer.text[:500]
    raise ServiceRefusedError(answer.status_code, detail)


def _unreachable(url: httpx.URL, error: httpx.TransportError) -> UsageError:
    reason = str(error) or type(error).__name__
    return UsageError(
        f"the service at {url} does not answer ({reason}); start it with `evalcore serve`, or name "
        "another address in EVALCORE_SERVICE"
    )
