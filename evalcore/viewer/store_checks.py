"""Whether a viewer's store is there, asked before each page: pages never wait long for it."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from evalcore.errors import EvalError, ObjectNotFoundError, StoreError
from evalcore.storage.store import ObjectStore

# An object that no store has: that it is missing is an answer.
_PROBE_KEY: Final = "runs/probe-of-the-viewer"
_ANSWER_S: Final = 2.5
_CONNECT_S: Final = 1.0
# An answer holds for a while, and so does its absence: a page says at once what the last one saw.
_GOOD_FOR_S: Final = 2.0
_BAD_FOR_S: Final = 5.0


class StoreCheck:
    """Asks a store whether it answers, at most every 2 s; safe to use from several threads.

    A folder has to exist. A server has 2.5 s to answer, to a client that does not repeat requests;
    what it lacked is said again for 5 s without asking.
    """

    def __init__(self, store: ObjectStore, shown_as: str | None = None) -> None:
        """Take the store; `shown_as` stands in messages that must not have its address."""
        self._url = store.url
        self._shown_as = shown_as
        self._probe: ObjectStore | None = None
        self._lock = threading.Lock()
        self._checked_until = float("-inf")
        self._error: EvalError | None = None
        self._pool = ThreadPoolExecutor(1, "viewer-store")
        self._asking: Future[None] | None = None

    def require(self) -> None:
        """Return if the store is there; raise `StoreError` with the reason if it is not."""
        with self._lock:
            if time.monotonic() >= self._checked_until:
                self._error = self._ask()
                # A folder that appears is shown at once; a server that is away takes its time.
                bad_for_s = _BAD_FOR_S if urlsplit(self._url).scheme == "s3" else 0.0
                valid_s = _GOOD_FOR_S if self._error is None else bad_for_s
                self._checked_until = time.monotonic() + valid_s
            if self._error is not None:
                raise self._error

    def forget(self) -> None:
        """Ask anew before the next page."""
        self._checked_until = float("-inf")

    def close(self) -> None:
        """Ask no further."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self) -> EvalError | None:
        # A thread that still waits for the last answer is not joined by a second one.
        if self._asking is None or self._asking.done():
            self._asking = self._pool.submit(self._look)
        try:
            self._asking.result(_ANSWER_S)
        except FutureTimeoutError:
            return StoreError(
                f"{self._shown_as or self._url} does not answer within {_ANSWER_S:g} s: check the "
                "server and the network, then load the page again"
            )
        except EvalError as error:
            if self._shown_as is None:
                return error
            return StoreError(f"the store of {self._shown_as} does not answer: try again later")
        return None

    def _look(self) -> None:
        require_folder(self._url)
        if urlsplit(self._url).scheme == "s3":
            self._require_server()

    def _require_server(self) -> None:
        if self._probe is None:
            from evalcore.storage.address import open_store
            from evalcore.storage.s3 import S3Settings

            settings = S3Settings.from_environment(os.environ)
            quick = replace(
                settings, connect_timeout_s=_CONNECT_S, read_timeout_s=_ANSWER_S, max_attempts=1
            )
            self._probe = open_store(self._url, s3=quick)
        try:
            self._probe.get(_PROBE_KEY)
        except ObjectNotFoundError:
            return


def require_folder(address: str) -> None:
    """Raise `StoreError` if a store is a folder (`file://…`) that is not there."""
    url = urlsplit(address)
    if url.scheme != "file":
        return
    folder = Path(unquote(url.path))
    try:
        is_there = folder.is_dir()
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from error
    if not is_there:
        raise StoreError(
            f"there is no store at {folder}: no run was stored there yet, or the folder was moved "
            "or is not mounted. `evalcore run SUITE` makes it; `evalcore view STORE` shows another"
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        raise StoreError(f"{folder} cannot be read: this process lacks the permission")
