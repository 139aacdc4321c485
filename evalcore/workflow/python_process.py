"""Python of a workflow, of a block or a tool, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import EvalError
from evalcore.jsonvalues import parse_storable
from evalcore.settings import read_settings
from evalcore.trust.text import last_words
from evalcore.workflow import confinement
from evalcore.workflow.confinement import can_confine
from evalcore.workflow.events import BlockError

if TYPE_CHECKING:
    from evalcore.workflow.context import EngineServices

_CONFINEMENT: Final = Path(confinement.__file__)
_RUNNER: Final = Path(__file__).with_name("code_runner.py")
_OUTPUT_LIMIT: Final = 16 << 20
_MEMORY_LIMIT: Final = 2 << 30
# Numerical libraries reserve memory for every core they find.
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"}


async def run_python(
    name: str,
    data: Any,
    services: EngineServices,
    *,
    code: str | None,
    reference: str | None = None,
    timeout_s: float,
) -> Any:
    """Return what `main(data)` of `code` (or the function at `reference`) returns, as JSON.

    The process has the minimal environment of `run_command`, 2 GiB of address space and the time
    limit. What it prints is not part of the output. For a workflow of the service it has a folder
    of its own, and is confined to it (`trust.confinement`). Raises `BlockError`.
    """
    from evalcore.trust.commands import run_command

    confined = services.of_service and _is_to_be_confined()
    question = _question(name, data, services, code, reference, confined=confined)
    with ExitStack() as stack:
        folder, environment = _folder(services.folder), _ENVIRONMENT
        if services.of_service:
            own = TemporaryDirectory(prefix="evalcore-code-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(own))
            of_folder = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": os.defpath}
            environment = {**_ENVIRONMENT, **of_folder}
        program = [str(_RUNNER)]
        if confined:
            readable = [] if reference is None else [str(_RUNNER.parents[1])]
            program = [str(_CONFINEMENT), str(folder), *program, *readable]
        ended = await run_command(
            [sys.executable, "-I", *program],
            stdin=question.encode(errors="replace"),
            cwd=folder,
            timeout_s=timeout_s,
            env=environment,
            output_limit=_OUTPUT_LIMIT,
            memory_limit=_MEMORY_LIMIT,
        )
    if ended.timed_out:
        message = f"no output within {timeout_s:g} s (timeout_seconds)"
        raise BlockError("timeout", message, retryable=True)
    if ended.truncated and len(ended.stdout) >= _OUTPUT_LIMIT:
        raise BlockError("output", f"its output is longer than {_OUTPUT_LIMIT >> 20} MiB")
    try:
        answer = parse_storable(ended.stdout)
    except ValueError:
        stderr = last_words(ended.stderr.decode(errors="replace"))
        message = f"its process ended with exit code {ended.exit_code} and no output"
        message = f"{message}: {stderr}" if stderr else message
        raise BlockError("process", message, retryable=True) from None
    if "error" in answer:
        raise BlockError(answer["kind"], answer["error"], retryable=answer["retryable"])
    return answer["returned"]


def _is_to_be_confined() -> bool:
    """Whether code of the service is confined; raise `BlockError` where it cannot be and has to."""
    if read_settings(os.environ, Path.cwd()).allow_unconfined_code:
        return False
    if can_confine():
        return True
    message = "this system cannot confine code to a folder (Linux 5.13 with Landlock can); "
    message += "EVALCORE_ALLOW_UNCONFINED_CODE=1 lets it run with the rights of the service"
    raise BlockError("isolation", message)


def _question(
    name: str,
    data: Any,
    services: EngineServices,
    code: str | None,
    reference: str | None,
    *,
    confined: bool,
) -> str:
    """Return what the process reads; raise `BlockError` if it may not be started."""
    policy = services.imports
    try:
        policy.check_command(name)
    except EvalError as error:
        raise BlockError("command", str(error)) from error
    question = {
        "name": name,
        "code": code,
        "callable": reference,
        "roots": [] if confined else [str(root) for root in policy.roots],
        "allowed": list(policy.allowed),
        "package": str(_RUNNER.parents[2]),
        "data": data,
    }
    try:
        return json.dumps(question)
    except (TypeError, ValueError, RecursionError) as error:
        raise BlockError("input", f"its inputs are not JSON: {error}") from error


def _folder(suite: Path) -> Path:
    """Return the suite's folder; a worker elsewhere may not have it."""
    return suite if suite.is_dir() else Path(tempfile.gettempdir())
