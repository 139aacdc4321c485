"""`code`: Python in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import EvalError
from evalcore.trust.text import last_words
from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError

_RUNNER: Final = Path(__file__).with_name("code_runner.py")
_OUTPUT_LIMIT: Final = 16 << 20
_MEMORY_LIMIT: Final = 2 << 30
# Numerical libraries reserve memory for every core they find.
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"}


async def run(block: Block, context: Context) -> Any:
    """Return what `main(data)` (or the function `callable` names) returns, as JSON holds it.

    The process has the minimal environment of `run_command`, 2 GiB of address space and the
    block's time. What it prints is not part of the output.
    """
    from evalcore.trust.commands import run_command

    policy = context.services.imports
    try:
        policy.check_command(f"block '{block.id}'")
    except EvalError as error:
        raise BlockError("command", str(error)) from error
    try:
        question = json.dumps(
            {
                "name": f"block '{block.id}'",
                "code": block.fields.get("code"),
                "callable": block.fields.get("callable"),
                "roots": [str(root) for root in policy.roots],
                "allowed": list(policy.allowed),
                "package": str(_RUNNER.parents[3]),
                "data": context.data,
            }
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise BlockError("input", f"its inputs are not JSON: {error}") from error
    ended = await run_command(
        [sys.executable, "-I", str(_RUNNER)],
        stdin=question.encode(errors="replace"),
        cwd=_folder(context.services.folder),
        timeout_s=block.timeout_s,
        env=_ENVIRONMENT,
        output_limit=_OUTPUT_LIMIT,
        memory_limit=_MEMORY_LIMIT,
    )
    if ended.timed_out:
        message = f"no output within {block.timeout_s:g} s (timeout_seconds)"
        raise BlockError("timeout", message, retryable=True)
    if ended.truncated and len(ended.stdout) >= _OUTPUT_LIMIT:
        raise BlockError("output", f"its output is longer than {_OUTPUT_LIMIT >> 20} MiB")
    try:
        answer = orjson.loads(ended.stdout)
    except ValueError:
        said = last_words(ended.stderr.decode(errors="replace"))
        message = f"its process ended with exit code {ended.exit_code} and no output"
        message = f"{message}: {said}" if said else message
        raise BlockError("process", message, retryable=True) from None
    if "error" in answer:
        raise BlockError(answer["kind"], answer["error"], retryable=answer["retryable"])
    return answer["returned"]


def _folder(suite: Path) -> Path:
    """Return the suite's folder; a worker elsewhere may not have it."""
    return suite if suite.is_dir() else Path(tempfile.gettempdir())
