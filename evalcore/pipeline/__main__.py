"""The child of a coordinator: `python -m evalcore.pipeline` executes shards over pipes.

The parent (`process.ShardProcess`) writes JSON lines: first what the process may do, then calls. It
answers each with a line, and reports finished items and waits in between. It ends when its standard
input does: with its parent.
"""

from __future__ import annotations

import base64
import gc
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final

import orjson

from evalcore.errors import EvalError, RunGoneError, RunNotFoundError
from evalcore.execution.rates import ConcurrencyShare
from evalcore.execution.waits import Waits
from evalcore.execution.worker import ShardReceipt, process_worker
from evalcore.isolation.protocol import take_pipes
from evalcore.pipeline.session import (
    ExecuteOptions,
    ShardCall,
    accepted_run,
    execute_shard,
    options_of,
    run_item,
)
from evalcore.trust.processes import hide_process

if TYPE_CHECKING:
    from evalcore.execution.row import ItemEnd

_REPORT_EVERY_S: Final = 0.1
_WAITS_EVERY_S: Final = 1.0
_END_S: Final = 5.0


class _Child:
    """The child's side: reads calls, executes each in a thread, answers."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self._calls, self._answers = calls, answers
        self._lock = threading.Lock()
        self._finished: list[tuple[int, str, str | None, int, int]] = []
        self._reported = time.monotonic()
        self._open: set[tuple[str, str, int]] = set()
        self._waits = Waits()

    def serve(self) -> None:
        """Execute calls until the parent closes the pipe or ends."""
        first = self._calls.readline()
        if not first:
            return
        given = orjson.loads(first)
        options = replace(
            options_of(given),
            progress=self._note,
            warn=lambda text: self._answer({"warn": text}),
            waits=self._waits,
            share=ConcurrencyShare(*given["share"]),
        )
        self._answer({"ready": True})
        threading.Thread(target=self._tell_waits, name="evalcore-waits", daemon=True).start()
        threads: list[threading.Thread] = []
        for line in self._calls:
            message = orjson.loads(line)
            if message.get("stop"):
                self._stop()
                continue
            call = ShardCall(*(message.get("open") or message["call"]))
            self._open.add(call.key)
            if "open" in message:
                thread = threading.Thread(target=self._open_run, args=(call, options), daemon=True)
            else:
                arguments = (message["number"], call, message["only"], options)
                thread = threading.Thread(target=self._execute, args=arguments, daemon=True)
            thread.start()
            threads.append(thread)
        self._stop()
        for thread in threads:
            thread.join(_END_S)
        for key in self._open:
            process_worker().close(key)

    def _tell_waits(self) -> None:
        told: dict[str, tuple[int, float]] = {}
        while True:
            time.sleep(_WAITS_EVERY_S)
            if (waits := dict(self._waits.standing())) or told:
                self._answer({"waits": waits})
                told = waits

    def _stop(self) -> None:
        for key in self._open:
            if (opened := process_worker().find(key)) is not None:
                opened.stop()

    def _open_run(self, call: ShardCall, options: ExecuteOptions) -> None:
        with suppress(Exception):  # the first shard meets it again
            accepted_run(call, options)

    def _execute(
        self, number: int, call: ShardCall, only: int | None, options: ExecuteOptions
    ) -> None:
        answer: dict[str, Any]
        try:
            if only is not None:
                row = run_item(call, only, options)
                answer = {"row": None if row is None else base64.b64encode(row).decode()}
            else:
                ended = execute_shard(call, options)
                name = "receipt" if isinstance(ended, ShardReceipt) else "stopped"
                answer = {name: list(ended)}
        except RunNotFoundError:
            gone = RunGoneError(call.run_id, call.store)
            answer = {"error": base64.b64encode(pickle.dumps(gone)).decode()}
        except (EvalError, OSError, MemoryError) as error:
            answer = {"error": base64.b64encode(pickle.dumps(error)).decode()}
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            plain = RuntimeError(f"{type(error).__name__}: {error}")
            answer = {"error": base64.b64encode(pickle.dumps(plain)).decode()}
        self._report()
        self._answer({"number": number, **answer})

    def _note(self, finished: ItemEnd) -> None:
        outcome = finished.outcome
        self._finished.append(
            (
                finished.number,
                finished.status.value,
                None if outcome is None else outcome.value,
                finished.started_us,
                finished.ended_us,
            )
        )
        if time.monotonic() - self._reported > _REPORT_EVERY_S:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        finished, self._finished = self._finished, []
        if finished:
            self._answer({"items": finished})

    def _answer(self, message: Mapping[str, Any]) -> None:
        data = orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock, suppress(OSError):  # the parent is gone
            self._answers.write(data)
            self._answers.flush()


def main() -> None:
    """Serve calls from standard input; what the suite prints goes to standard error."""
    # As in the command itself (`cli.main`): there is hardly a cycle to be found.
    gc.set_threshold(100_000, 50, 50)
    gc.freeze()
    hide_process()
    with suppress(BrokenPipeError, KeyboardInterrupt):
        _Child(*take_pipes()).serve()
    # Threads of a suite may still run; nothing is left that has to be written.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
