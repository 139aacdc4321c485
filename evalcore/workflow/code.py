"""Python of a workflow's blocks: the call in a worker process, and what is called there."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.trust.imports import ImportPolicy, in_thread, text_of_error
from evalcore.workflow import confinement
from evalcore.workflow.events import BlockError

if TYPE_CHECKING:
    from evalcore.isolation.pool import Launch, WorkerPool
    from evalcore.isolation.worker import Engine
    from evalcore.workflow.context import EngineServices

_ENTRY: Final = "evalcore.workflow.code:run_in_worker"
_PACKAGE: Final = Path(__file__).parents[1]
_MEMORY: Final = 2 << 30
# Numerical libraries reserve memory for every core they find.
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"}
_FILE: Final = "<code>"
_LONGEST: Final = 2_000
_DEEPEST: Final = 100


class CodeCall(NamedTuple):
    """One call: of `main(data)` of `code`, or of the function at `reference`."""

    code: str | None
    reference: str | None
    data: Any
    imports: ImportPolicy
    folder: Path


async def run_python(block: str, call: CodeCall, services: EngineServices) -> Any:
    """Return what the function returns, as JSON; raise `BlockError`.

    Its process has a minimal environment and 2 GiB of memory; cancelled, it ends. For a workflow of
    the service it is started for this call, in a folder of its own, and is confined to it.
    """
    from evalcore.isolation.pool import Job, WorkerPool

    try:
        services.imports.check_command(f"block '{block}'")
    except EvalError as error:
        raise BlockError("command", str(error)) from error
    try:
        if not services.of_service:
            return _returned(await _pool().call(Job(_ENTRY, call)))
        is_confined = _is_to_be_confined()
        with TemporaryDirectory(prefix="evalcore-code-", ignore_cleanup_errors=True) as own:
            pool = WorkerPool(limit=1, launch=_launch(Path(own), is_confined=is_confined))
            # Where nothing but the folder can be read there are no modules of a suite.
            imports = replace(call.imports, roots=()) if is_confined else call.imports
            job = Job(_ENTRY, call._replace(folder=Path(own), imports=imports))
            try:
                return _returned(await pool.call(job))
            finally:
                await asyncio.to_thread(pool.close)
    except TargetError as error:
        raise BlockError(error.kind, error.message, retryable=error.kind == "process") from error


def _returned(answer: Any) -> Any:
    if "error" in answer:
        raise BlockError(answer["kind"], answer["error"], retryable=answer["retryable"])
    return answer["returned"]


@cache
def _pool() -> WorkerPool:
    """Return the processes that run the code of suites; they end with this one."""
    from evalcore.isolation.pool import Launch, WorkerPool
    from evalcore.trust.commands import minimal_environment

    pool = WorkerPool(launch=Launch(environment=minimal_environment(_ENVIRONMENT), memory=_MEMORY))
    atexit.register(pool.close)
    return pool


def _launch(folder: Path, *, is_confined: bool) -> Launch:
    """Return how a process starts that has a folder of its own."""
    from evalcore.isolation.pool import Launch
    from evalcore.trust.commands import minimal_environment

    of_folder = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": os.defpath}
    environment = minimal_environment({**_ENVIRONMENT, **of_folder})
    launch = Launch(environment=environment, memory=_MEMORY, folder=folder)
    if not is_confined:
        return launch
    program = (sys.executable, "-I", "-u", confinement.__file__, str(folder), str(_PACKAGE))
    return launch._replace(command=program)


def _is_to_be_confined() -> bool:
    """Whether code of the service is confined; raise `BlockError` where it cannot be and has to."""
    from evalcore.settings import read_settings

    if read_settings(os.environ, Path.cwd()).allow_unconfined_code:
        return False
    if confinement.can_confine():
        return True
    message = "this system cannot confine code to a folder (Linux 5.13 with Landlock can); "
    message += "EVALCORE_ALLOW_UNCONFINED_CODE=1 lets it run with the rights of the service"
    raise BlockError("isolation", message)


async def run_in_worker(call: CodeCall, engine: Engine) -> dict[str, Any]:
    """Return `{returned}` or `{error, kind, retryable}`: what a worker process runs."""
    # A worker on another machine may not have the suite's folder.
    os.chdir(call.folder if call.folder.is_dir() else tempfile.gettempdir())
    engine.loaded()
    return await in_thread(lambda: answer_of(call))


def answer_of(call: CodeCall) -> dict[str, Any]:
    """Return what the code returns, or how it fails."""
    try:
        returned = _function(call)(call.data)
        if hasattr(returned, "__await__"):

            async def awaited() -> Any:
                return await returned

            returned = asyncio.run(awaited())
    except BlockError as error:
        return _error(error.kind, error.message, retryable=False)
    except BaseException as error:  # noqa: BLE001 - foreign code; even sys.exit() is an error
        return _failure(error)
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


def _function(call: CodeCall) -> Callable[..., Any]:
    """Return the function; raise `BlockError` if there is none."""
    if call.reference is not None:
        try:
            return call.imports.load(call.reference)
        except EvalError as error:
            raise BlockError("import", str(error)) from error
    scope: dict[str, Any] = {"__name__": "__block__", "__builtins__": __builtins__}
    exec(compile(call.code or "", _FILE, "exec"), scope)  # noqa: S102 - what the block is for
    function = scope.get("main")
    if not callable(function):
        raise BlockError("code", "the code has no function main(data)")
    main: Callable[..., Any] = function
    return main


def _failure(error: BaseException) -> dict[str, Any]:
    name = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == _FILE:
        message = f"{name}: {error.msg} (line {error.lineno} of the code)"
        return _error(name, message, retryable=False)
    message = text_of_error(error)[:_LONGEST]
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == _FILE:
            line = step.tb_lineno
        step = step.tb_next
    if line is not None:
        message = f"{message} (line {line} of the code)"
    return _error(name, message, retryable=True)


def _error(kind: str, message: str, *, retryable: bool) -> dict[str, Any]:
    return {"error": message, "kind": kind, "retryable": retryable}
