"""Runs the Python of one code block; a program, started by `code.run` as `python -I`.

Standard input: the question. Standard output: `{"returned"}` or `{"error", "kind", "retryable"}`
and nothing else; what the block prints goes to standard error. It imports only the standard
library, and `evalcore.trust.imports` for a function that is named.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

_FILE = "<code>"
_LONGEST = 2_000
_DEEPEST = 100


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    # The code and its children inherit standard error in the place of standard output, and nothing
    # to read; the answer's descriptor is not inherited.
    answer_to = os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    try:
        answer = _answer(question)
    except BaseException as error:  # noqa: BLE001 - foreign code; even sys.exit() is an error
        answer = _failure(error, question["code"])
    data = json.dumps(answer, allow_nan=False).encode()
    while data:
        data = data[os.write(answer_to, data) :]
    # Threads and exit handlers of the code cannot hold up or change an answer that is given.
    os._exit(0)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    function = _function(question)
    if isinstance(function, dict):
        return function
    returned = function(question["data"])
    if hasattr(returned, "__await__"):
        import asyncio

        async def awaited() -> Any:
            return await returned

        returned = asyncio.run(awaited())
    try:
        # Text that is not Unicode cannot be encoded.
        json.dumps(returned, allow_nan=False, ensure_ascii=False).encode()
        _check_storable(returned, _DEEPEST)
    except (TypeError, ValueError, RecursionError) as error:
        return _error("output", f"returned what JSON cannot hold: {error}", retryable=False)
    return {"returned": returned}


def _check_storable(value: Any, left: int) -> None:
    # Read as a floating-point number, a larger integer would be another one.
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError("an integer of more than 64 bits; return it as text")
    if not isinstance(value, dict | list | tuple):
        return
    if not left:
        raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
    for member in value.values() if isinstance(value, dict) else value:
        _check_storable(member, left - 1)


def _function(question: dict[str, Any]) -> Callable[..., Any] | dict[str, Any]:
    """Return the function, or the answer that says why there is none."""
    if question["code"] is None:
        return _named(question)
    scope: dict[str, Any] = {"__name__": "__block__", "__builtins__": __builtins__}
    exec(compile(question["code"], _FILE, "exec"), scope)  # noqa: S102 - what the block is for
    function = scope.get("main")
    if not callable(function):
        return _error("code", "the code has no function main(data)", retryable=False)
    main_function: Callable[..., Any] = function
    return main_function


def _named(question: dict[str, Any]) -> Callable[..., Any] | dict[str, Any]:
    from pathlib import Path

    sys.path.append(question["package"])
    from evalcore.errors import EvalError
    from evalcore.trust.imports import ImportPolicy

    policy = ImportPolicy(tuple(map(Path, question["roots"])), tuple(question["allowed"]))
    try:
        return policy.load(question["callable"])
    except EvalError as error:
        return _error("import", str(error), retryable=False)


def _failure(error: BaseException, code: str | None) -> dict[str, Any]:
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a foreign __str__
        text = ""
    if isinstance(error, SyntaxError) and error.filename == _FILE:
        message = f"{name}: {error.msg} (line {error.lineno} of the code)"
        return _error(name, message, retryable=False)
    message = f"{name}: {text}" if text else name
    line = None if code is None else _line(error)
    if line is not None:
        message = f"{message[:_LONGEST]} (line {line} of the code)"
    return _error(name, message[: _LONGEST + 100], retryable=True)


def _line(error: BaseException) -> int | None:
    """Return the last line of the block's own code that the exception went through."""
    line = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == _FILE:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _error(kind: str, message: str, *, retryable: bool) -> dict[str, Any]:
    return {"error": message, "kind": kind, "retryable": retryable}


if __name__ == "__main__":
    main()
