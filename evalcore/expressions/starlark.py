"""Starlark scripts, in a process of their own that can be stopped.

The binding runs a script within the interpreter, where one multiplication can take all the memory
there is; a process has a limit for it, and can be killed. Processes are kept for the next script.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from evalcore.expressions.budget import Budget, LimitError
from evalcore.expressions.data_functions import log
from evalcore.expressions.failure import ExpressionError, ExpressionSyntaxError
from evalcore.expressions.frames import UNDERSCORED
from evalcore.expressions.starlark_wire import UnsendableError, decode, encode
from evalcore.expressions.values import walk
from evalcore.wording import one_line

_WORKER: Final = Path(__file__).with_name("starlark_worker.py")
# Beyond what the process has when it is ready.
_MEMORY: Final = 256 << 20
# A script's steps are smaller than an expression's.
_STEPS_PER_STEP: Final = 100
_IDLE: Final = 4
_SCRIPTS_PER_PROCESS: Final = 200
_START_S: Final = 20.0
_LONGEST_GREETING: Final = 1000
_WORD: Final = re.compile(r"\w+")


def run_starlark(
    source: str,
    scope: Mapping[str, Any],
    budget: Budget | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Run a script and return its variable `result`, or else what its `run()` returns.

    The script sees copies of the scope's values, as far as JSON knows them, and the functions
    (called here, in this thread, with JSON values; their time is not counted). Raises
    `ExpressionError`; what a function raises comes through unchanged. Blocks: call it in a thread.
    """
    budget = budget or Budget()
    words = set(_WORD.findall(source))
    used_functions = {
        name: function for name, function in (functions or {}).items() if name in words
    }
    question = {
        "source": source,
        "steps": budget.steps_left * _STEPS_PER_STEP,
        "only_parse": False,
        "scope": _values(scope, words - set(used_functions), budget),
        "functions": list(used_functions),
    }
    answer = _ask(question, used_functions, budget)
    if "error" in answer:
        raise ExpressionError(answer["kind"], _placed(answer), _named(source))
    result = answer["result"]
    try:
        walk(result, budget)
    except LimitError as error:
        raise ExpressionError("LimitError", str(error), _named(source)) from None
    return result


@lru_cache(maxsize=1024)
def check_starlark(source: str) -> None:
    """Raise `ExpressionSyntaxError` where a script cannot be parsed; nothing is run."""
    question = {"source": source, "steps": 0, "only_parse": True, "scope": {}, "functions": []}
    answer = _ask(question, {}, Budget())
    if "error" in answer:
        reason = one_line(answer["error"], 200)
        raise ExpressionSyntaxError(reason, answer.get("line") or 1, answer.get("column") or 1)


def _named(source: str) -> str:
    first = next((line.strip() for line in source.splitlines() if line.strip()), "")
    return f"starlark {first!r}"


def _placed(answer: dict[str, Any]) -> str:
    line = answer.get("line")
    return f"line {line}: {answer['error']}" if line else str(answer["error"])


def _values(scope: Mapping[str, Any], words: set[str], budget: Budget) -> dict[str, Any]:
    """Return the variables that the script names."""
    chosen = {}
    for name in words:
        if name in scope and (not name.startswith("_") or name in UNDERSCORED):
            try:
                walk(scope[name], budget)
                encode({"value": scope[name]})
            except UnsendableError as error:
                message = f"{name!r} holds {error}, which a script cannot take"
                raise ExpressionError("TypeError", message, "starlark") from None
            except Exception as error:  # noqa: BLE001 - the values are tools' own
                raise ExpressionError("LimitError", f"{name!r}: {error}", "starlark") from None
            chosen[name] = scope[name]
    return chosen


class _Process:
    """A process that runs scripts, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_WORKER), str(_MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={key: os.environ[key] for key in ("SYSTEMROOT",) if key in os.environ},
            bufsize=0,
        )
        self.scripts = 0
        self._read = b""
        try:
            self.receive(time.monotonic() + _START_S, _LONGEST_GREETING)
        except BaseException:
            # No process is left behind when its start is interrupted.
            self.end()
            raise

    def send(self, message: dict[str, Any]) -> None:
        """Write a message; raise `OSError` where the process has ended."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        left = memoryview(encode(message))
        while left:
            left = left[self._process.stdin.write(left) or 0 :]

    def receive(self, deadline: float, longest: int) -> dict[str, Any]:
        """Return its next message; raise `TimeoutError`, or `EOFError` where it has ended."""
        output = self._process.stdout
        assert output is not None  # noqa: S101 - it was asked for
        parts = [self._read]
        size = len(self._read)
        while b"\n" not in parts[-1]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                raise TimeoutError
            part = os.read(output.fileno(), 1 << 16)
            if not part:
                raise EOFError
            parts.append(part)
            size += len(part)
            if size > longest:
                raise OverflowError
        line, _, self._read = b"".join(parts).partition(b"\n")
        return decode(line)

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


class _Idle:
    """Processes that wait for a script."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Process] = []
        self._owner = os.getpid()
        atexit.register(self.clear)

    def take(self) -> _Process:
        with self._lock:
            if self._owner != os.getpid():  # a fork does not share its parent's
                self._waiting, self._owner = [], os.getpid()
            if self._waiting:
                return self._waiting.pop()
        return _Process()

    def give_back(self, process: _Process) -> None:
        with self._lock:
            if len(self._waiting) < _IDLE and process.scripts < _SCRIPTS_PER_PROCESS:
                self._waiting.append(process)
                return
        process.end()

    def clear(self) -> None:
        if self._owner == os.getpid():
            while self._waiting:
                self._waiting.pop().end()


@lru_cache(maxsize=1)
def _idle() -> _Idle:
    return _Idle()


def _ask(
    question: dict[str, Any], functions: Mapping[str, Callable[..., Any]], budget: Budget
) -> dict[str, Any]:
    """Return the answer to a question; a process that did not give one is not used again."""
    try:
        process = _idle().take()
    except (TimeoutError, EOFError, OSError, ValueError):
        return _limit("the process that runs scripts could not be started")
    answered = False
    try:
        process.send(question)
        answer, failure = _conversation(process, functions, budget)
        answered = True
    except TimeoutError:
        return _limit(f"it takes longer than {budget.seconds:g} s")
    except LimitError as error:
        return _limit(str(error))
    except OverflowError:
        return _limit(f"it gives more than {budget.bytes:,} bytes")
    except (EOFError, OSError):
        return _limit("its process ended: it took too much memory")
    finally:
        if answered:
            _idle().give_back(process)
        else:
            process.end()
    if failure is not None:
        raise failure
    return answer


def _limit(message: str) -> dict[str, Any]:
    return {"error": message, "kind": "LimitError"}


def _conversation(
    process: _Process, functions: Mapping[str, Callable[..., Any]], budget: Budget
) -> tuple[dict[str, Any], Exception | None]:
    """Answer the script's calls until it ends; return its answer and what a call raised."""
    process.scripts += 1
    longest = 8 * budget.bytes + (1 << 20)
    failure: Exception | None = None
    while True:
        started = time.monotonic()
        message = process.receive(started + budget.seconds_left, longest)
        budget.seconds_left -= time.monotonic() - started
        if "log" in message:
            started = budget.start()
            try:
                log(budget, message["log"])
            finally:
                budget.stop(started)
            continue
        if "call" not in message:
            return message, failure
        name = message["call"]
        try:
            returned = functions[name](*message["values"], **message["by_name"])
            answer = {"returned": returned}
            encode(answer)
        except UnsendableError as error:
            reason = f"{name}() returned {error}, which a script cannot take"
            failure, answer = ExpressionError("TypeError", reason, "starlark"), {"raised": True}
        except Exception as error:  # noqa: BLE001 - a tool's, raised again when the script has ended
            failure, answer = error, {"raised": True}
        process.send(answer)
