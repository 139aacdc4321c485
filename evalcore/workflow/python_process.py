"""Python of a workflow, of a block or a tool, in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import EvalError
from evalcore.jsonvalues import parse_storable
from evalcore.trust.text import last_words
from evalcore.workflow.failure import BlockError

if TYPE_CHECKING:
    from evalcore.workflow.services import EngineServices

_RUNNER: Final = Path(__file__).parent / "blocks" / "code_runner.py"
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
    limit. What it prints is not part of the output. Raises `BlockError`.
    """
    from evalcore.trust.commands import run_command

    question = _question(name, data, services, code, reference)
    ended = await run_command(
        [sys.executable, "-I", str(_RUNNER)],
        stdin=question.encode(errors="replace"),
        cwd=_folder(services.folder),
        timeout_s=timeout_s,
        env=_ENVIRONMENT,
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


def _question(
    name: str, data: Any, services: EngineServices, code: str | None, reference: str | None
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
        "roots": [str(root) for root in policy.roots],
        "allowed": list(policy.allowed),
        "package": str(_RUNNER.parents[3]),
        "data": data,
    }
    try:
        return json.dumps(question)
    except (TypeError, ValueError, RecursionError) as error:
        raise BlockError("input", f"its inputs are not JSON: {error}") from error


def _folder(suite: Path) -> Path:
    """Return the suite's folder; a worker elsewhere may not have it."""
    return suite if suite.is_dir() else Path(tempfile.gettempdir())
