"""An HTTP server that keeps the messages that Apprise sends it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """An HTTP server that keeps what it is sent; it answers while `answers` is set."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.answers.wait(120)
                receiver.messages.append(json.loads(body))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"json://127.0.0.1:{self.server.server_address[1]}/s3cret-token-in-path"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
