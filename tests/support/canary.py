"""A server that hears each request, and texts that would make one if a page took them as markup."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

FORMS: Final = (
    "<script>window.owned=1;fetch('{url}')</script>",
    "</textarea></title></style><script src='{url}'></script>",
    "<img src='{url}' onerror='window.owned=1'>",
    "<svg onload=\"window.owned=1;fetch('{url}')\"><use href='{url}'/></svg>",
    '" autofocus onfocus="window.owned=1;fetch(\'{url}\')" x="',
    "' onmouseover='window.owned=1' style='background:url({url})",
    "<style>@import '{url}';*{{background:url({url})}}</style>",
    "<link rel=stylesheet href='{url}'><link rel=prefetch href='{url}'>",
    "<iframe srcdoc=\"<script src='{url}'></script>\"></iframe>",
    "<base href='{url}'><meta http-equiv=refresh content='0;url={url}'>",
    "<form action='{url}'><input name=q><button>x</button></form>",
    "[a]({url}) ![b]({url}) {{{{ 7*7 }}}} ${{fetch('{url}')}} javascript:fetch('{url}')",
)


@dataclass
class Canary:
    """`heard` are the paths that were asked for."""

    address: str
    heard: list[str] = field(default_factory=list)
    attempts: int = 0

    def attempt(self, place: str) -> str:
        """Return a text that says where it stands; each call has the next form."""
        form = FORMS[self.attempts % len(FORMS)]
        self.attempts += 1
        return f"{place} " + form.format(url=f"{self.address}/{place}-{self.attempts}")


@contextmanager
def canary_server() -> Iterator[Canary]:
    """Serve on loopback until the context ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            canary.heard.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    canary = Canary(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield canary
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
