"""The recorder of a run: finds what is recorded, saves what was asked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, ParamSpec, TypeVar

from evalcore.errors import StoreError
from evalcore.model.exchange import ProviderError, Reply, Request
from evalcore.model.mode import Mode
from evalcore.recording.content import (
    Origin,
    Question,
    Recording,
    RecordingError,
    differences,
    encode,
    nearest,
)
from evalcore.recording.library import Library
from evalcore.recording.redaction import Redaction
from evalcore.storage.layout import iso_time
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import retried

MISSING: Final = "recording"
NEIGHBOURS: Final = 2_000
"""How many recordings a miss is compared with: all of a smaller store, a chance sample of a larger
one, because keys are digests."""

_THREADS: Final = 16
# Beside the store's own repetitions: an answer was paid, and a run that stops has to be resumed.
_STORE_RETRIES_S: Final = (0.5, 2.0, 5.0)
_HOW_TO_RECORD: Final = "`--mode auto` records what is missing"

P = ParamSpec("P")
T = TypeVar("T")


class Recorder:
    """Finds and saves exchanges; for any number of calls at once, in any event loop.

    What is saved is what everybody uses from then on, the run that saves it included: the first
    writer's, free of secrets. So a replay gives what the recorded run gave. With `run`, what it
    recorded before it was interrupted is not asked again in `record`.
    """

    def __init__(
        self, store: ObjectStore, mode: Mode, redaction: Redaction, *, run: str | None = None
    ) -> None:
        self.mode = mode
        self._library = Library(store)
        self._redaction = redaction
        self._run = run
        self._id = os.urandom(8).hex()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="recorder")
        self._lock = threading.Lock()
        self._neighbours: list[Recording] | None = None

    async def find(
        self, request: Request, question: Question, asker: str | None = None
    ) -> Reply | None:
        """Return the recorded reply to the question of a request; None if the call is to be made.

        A recorded failure is raised as it was. In `replay` nothing is called: a missing recording
        raises `ProviderError` of kind `recording` that tells the nearest one. In `record` only
        what this run itself recorded before a restart is found. `StoreError` if the store stays
        away: that is no item's fault.
        """
        return await self._in_thread(self._find, request, question, asker)

    async def save(
        self,
        request: Request,
        question: Question,
        outcome: Reply | ProviderError,
        asker: str | None = None,
    ) -> Reply:
        """Record an exchange; return what is recorded now, or raise it if that is a failure.

        If another writer was first, that is his, unless another case or variant asked the same
        (`asker`): then both are kept. Only in `record` does the failure of an earlier
        run give way. If it can never be recorded, `ProviderError` of kind `recording`; if the store
        does not confirm it, `StoreError`: the run stops and can be resumed.
        """
        return await self._in_thread(self._save, request, question, outcome, asker)

    def close(self) -> None:
        """Wait for what is being written; to be called once."""
        self._threads.shutdown()

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        future = asyncio.wrap_future(self._threads.submit(function, *args, **kwargs))
        # Read, also of one that is cancelled twice: asyncio logs what was never retrieved.
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A call that was made and paid is recorded, even if its item is cancelled now.
            await asyncio.wait([future])
            raise

    def _persistently(self, action: Callable[[], T]) -> T:
        """Return what the action returns; a fault of the store is waited out, not for ever."""
        try:
            return retried(action, _STORE_RETRIES_S)
        except StoreError as error:
            if self._run is None:
                raise
            what_now = f"`evalcore run --resume {self._run}` goes on where it stopped"
            raise StoreError(f"the recordings cannot be reached: {error}; {what_now}") from error

    def _find(self, request: Request, question: Question, asker: str | None) -> Reply | None:
        try:
            entry = self._persistently(lambda: self._library.read(question.digest))
            if entry is not None and _is_of_another(entry, asker):
                own = question.of_asker(asker or "")
                entry = self._persistently(lambda: self._library.read(own.digest)) or entry
            if entry is None:
                if self.mode is Mode.REPLAY:
                    redaction = self._redaction.knowing(request.endpoint)
                    explained = self._persistently(lambda: self._explained(question, redaction))
                    raise ProviderError(MISSING, explained, attempts=0)
                return None
        except RecordingError as error:
            raise ProviderError(MISSING, str(error), attempts=0) from error
        is_own = self._is_left_over(entry) and not _is_of_another(entry, asker)
        if self.mode is Mode.RECORD and not is_own:
            return None
        return _reply_or_error(entry.outcome)

    def _save(
        self,
        request: Request,
        question: Question,
        outcome: Reply | ProviderError,
        asker: str | None,
    ) -> Reply:
        redaction = self._redaction.knowing(request.endpoint)
        try:
            stored = self._written(question, outcome, asker, redaction)
            if asker is not None and stored.origin.asker not in (None, asker):
                stored = self._written(question.of_asker(asker), outcome, asker, redaction)
        except RecordingError as error:
            raise ProviderError(MISSING, str(error)) from error
        return replace(_reply_or_error(stored.outcome), recorded=False)

    def _written(
        self,
        question: Question,
        outcome: Reply | ProviderError,
        asker: str | None,
        redaction: Redaction,
    ) -> Recording:
        """Write what was answered unless another recording stands; return the one that does."""
        origin = Origin(iso_time(datetime.now(UTC)), self._run, self._id, asker)
        data = encode(Recording(question.digest, question, origin, outcome), redaction)
        # Written although the answer was lost, it is found again as this recorder's own.
        return self._persistently(
            lambda: self._library.settle(question.digest, data, self._gives_way)
        )

    def _gives_way(self, recording: Recording) -> bool:
        origin = recording.origin
        is_ours = origin.recorder == self._id or (
            origin.run is not None and origin.run == self._run
        )
        failed = isinstance(recording.outcome, ProviderError)
        return failed and not is_ours and self.mode is Mode.RECORD

    def _is_left_over(self, entry: Recording) -> bool:
        """Whether this run recorded it in a process that has ended."""
        origin = entry.origin
        return origin.run is not None and origin.run == self._run and origin.recorder != self._id

    def _explained(self, question: Question, redaction: Redaction) -> str:
        asked = replace(question, identity=redaction.identity(question.identity))
        near = nearest(asked, self._known())
        if near is None:
            return (
                f"no recording of this call: the store has no recordings; {_HOW_TO_RECORD}, "
                "`evalcore recordings import FOLDER` brings exported ones"
            )
        different = differences(near.question, asked) or "something secret"
        return (
            f"no recording of this call; the nearest, {near.digest[:12]}, differs in: {different} "
            f"(recorded → asked); {_HOW_TO_RECORD}"
        )

    def _known(self) -> list[Recording]:
        with self._lock:
            if self._neighbours is None:
                listed = self._library.listed(NEIGHBOURS)
                self._neighbours = [each.recording for each in listed if each.recording is not None]
            return self._neighbours


def _is_of_another(entry: Recording, asker: str | None) -> bool:
    """Whether another case or variant than this one is known to have asked."""
    return asker is not None and entry.origin.asker not in (None, asker)


def _reply_or_error(outcome: Reply | ProviderError) -> Reply:
    if isinstance(outcome, ProviderError):
        raise outcome
    return outcome
