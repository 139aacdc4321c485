"""Pages of this project in one real browser."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI

from tests.support.viewer import pages_with_history

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Browser:
    """One page of one browser. `messages` are of its console, `requests` what it asked for."""

    page: Any
    origin: str
    axe: str
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Open a page of the viewer; it is as wide as a desktop's and light."""
        self.page.goto(f"{self.origin}{path}")

    def press(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def go(self, key: str) -> None:
        """Press a key that leads to another page, and wait for that."""
        with self.page.expect_navigation():
            self.page.keyboard.press(key)

    @property
    def path(self) -> str:
        """The path of the page that is shown."""
        return str(self.page.url).removeprefix(self.origin)

    @property
    def text(self) -> str:
        """What is shown."""
        return str(self.page.inner_text("main"))


@contextmanager
def opened_browser(origin: str = "") -> Iterator[Browser]:
    """Start Chromium and give its page."""
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        page = chromium.new_page()
        page.set_default_timeout(60_000)
        browser = Browser(page, origin, Axe().axe_script)
        page.on("console", lambda message: browser.messages.append(message.text))
        page.on("pageerror", lambda error: browser.messages.append(str(error)))
        page.on("dialog", lambda dialog: browser.messages.append(dialog.message))
        page.on("request", lambda request: browser.requests.append(request.url))
        yield browser
        chromium.close()


@contextmanager
def served(application: FastAPI) -> Iterator[str]:
    """Serve an application by a real server in a thread; give its origin."""
    config = uvicorn.Config(application, port=0, log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < end, "the server does not start"
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with pages_with_history():
            yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def violations(browser: Browser, rules: tuple[str, ...] | None = None) -> list[str]:
    """Return what axe reports, by all rules or these."""
    options = {"resultTypes": ["violations"], "preload": False}
    if rules is not None:
        options["runOnly"] = list(rules)
    reported = browser.page.evaluate("options => axe.run(options).then(r => r.violations)", options)
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in reported]
