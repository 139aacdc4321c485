"""A real Chromium without a window, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_START_S = 60.0
_ANSWER_S = 60.0
_MAX_MESSAGE = 64 * 1024 * 1024


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page. `requests` are the addresses that it asked for, `problems` its console's errors."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: Any) -> None:
        self._loop = loop
        self._socket = socket
        self._last = 0
        self._loaded = False
        self.requests: list[str] = []
        self.problems: list[str] = []

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self._loaded = False
        self.call("Page.navigate", url=path.as_uri())
        self._loop.run_until_complete(asyncio.wait_for(self._until_loaded(), _ANSWER_S))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited if it is a promise."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _ANSWER_S
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never became true: {expression}"
            time.sleep(0.05)

    def wait_for_problem(self, text: str) -> None:
        """Wait until the console has told an error with a text."""
        end = time.monotonic() + _ANSWER_S
        while not any(text in problem for problem in self.problems):
            assert time.monotonic() < end, self.problems
            self.evaluate("1")  # what was told meanwhile is read with the answer
            time.sleep(0.05)

    def press(self, key: str, text: str = "") -> None:
        """Press a key, such as `Tab` or `Enter`, and let it go."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}
        code = codes.get(key, ord(key[0].upper()))
        given = {"key": key, "windowsVirtualKeyCode": code}
        typed = {"Enter": "\r"}.get(key, text)
        self.call("Input.dispatchKeyEvent", type="keyDown", text=typed, **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        """Write a picture of what is seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol and return its result."""
        return self._loop.run_until_complete(
            asyncio.wait_for(self._call(method, params), _ANSWER_S)
        )

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": params})
        while True:
            message = await self._next()
            if message.get("id") == self._last:
                assert "error" not in message, message
                return message["result"]

    async def _until_loaded(self) -> None:
        while not self._loaded:
            await self._next()

    async def _next(self) -> Any:
        message = json.loads((await self._socket.receive()).data)
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
        return message


@contextmanager
def chromium_page(program: str, profile: Path, *, dark: bool = False) -> Iterator[Page]:
    """Start Chromium with a profile of its own and give its page; end it afterwards."""
    arguments = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-extensions", "--disable-background-networking",
        "--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={profile}",
        "--window-size=1400,1000", "about:blank",
    ]  # fmt: skip
    if dark:
        arguments.insert(1, "--force-dark-mode")
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    loop = asyncio.new_event_loop()
    session: aiohttp.ClientSession | None = None
    try:
        port = _port(profile, process)
        session = loop.run_until_complete(_session())
        socket = loop.run_until_complete(_connect(session, port))
        yield Page(loop, socket)
        loop.run_until_complete(socket.close())
    finally:
        if session is not None:
            loop.run_until_complete(session.close())
        loop.close()
        process.terminate()
        process.wait(timeout=60)


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    """Return the port that Chromium chose, as soon as it has written it down."""
    written, end = profile / "DevToolsActivePort", time.monotonic() + _START_S
    while time.monotonic() < end:
        assert process.poll() is None, "Chromium has ended"
        lines = written.read_text("utf-8").splitlines() if written.exists() else []
        if len(lines) > 1:
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError("Chromium did not open its debugging port")


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


async def _connect(session: aiohttp.ClientSession, port: int) -> Any:
    async with asyncio.timeout(_START_S):
        while not (pages := await _pages(session, port)):
            await asyncio.sleep(0.05)
    return await session.ws_connect(pages[0], max_msg_size=_MAX_MESSAGE)


async def _pages(session: aiohttp.ClientSession, port: int) -> list[str]:
    """Return the addresses of the pages: its first one opens after its port."""
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        targets = await answer.json()
    return [one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page"]
