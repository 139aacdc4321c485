"""`code`: Python in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import orjson
from pydantic import Field

from evalcore.declared.types import OrAbsent, Text
from evalcore.errors import EvalError
from evalcore.mistakes.shape_lookup import CALLABLE
from evalcore.trust.text import last_words
from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.names import WorkflowMistake

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names

_RUNNER: Final = Path(__file__).with_name("code_runner.py")
_OUTPUT_LIMIT: Final = 16 << 20
_MEMORY_LIMIT: Final = 2 << 30
# Numerical libraries reserve memory for every core they find.
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"}


class CodeBlock(Block):
    """Python in its own process; the output is what the function returns, as JSON."""

    needs: ClassVar[tuple[str, ...]] = ("code", "callable")

    type: Literal["code"]
    code: OrAbsent[Text] = None
    callable: OrAbsent[Annotated[str, Field(pattern=CALLABLE)]] = None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:  # noqa: ARG002 - the method of all types
        """Yield a second source of code."""
        if self.code and self.callable:
            yield WorkflowMistake(("callable",), "give 'code' or 'callable', not both")

    async def run(self, context: Context) -> Any:
        """Return what `main(data)` (or the function `callable` names) returns, as JSON holds it.

        The process has the minimal environment of `run_command`, 2 GiB of address space and the
        block's time. What it prints is not part of the output.
        """
        from evalcore.trust.commands import run_command

        policy = context.services.imports
        try:
            policy.check_command(f"block '{self.id}'")
        except EvalError as error:
            raise BlockError("command", str(error)) from error
        try:
            question = json.dumps(
                {
                    "name": f"block '{self.id}'",
                    "code": self.code,
                    "callable": self.callable,
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
            timeout_s=self.timeout_seconds,
            env=_ENVIRONMENT,
            output_limit=_OUTPUT_LIMIT,
            memory_limit=_MEMORY_LIMIT,
        )
        if ended.timed_out:
            message = f"no output within {self.timeout_seconds:g} s (timeout_seconds)"
            raise BlockError("timeout", message, retryable=True)
        if ended.truncated and len(ended.stdout) >= _OUTPUT_LIMIT:
            raise BlockError("output", f"its output is longer than {_OUTPUT_LIMIT >> 20} MiB")
        try:
            answer = orjson.loads(ended.stdout)
        except ValueError:
            stderr = last_words(ended.stderr.decode(errors="replace"))
            message = f"its process ended with exit code {ended.exit_code} and no output"
            message = f"{message}: {stderr}" if stderr else message
            raise BlockError("process", message, retryable=True) from None
        if "error" in answer:
            raise BlockError(answer["kind"], answer["error"], retryable=answer["retryable"])
        return answer["returned"]


def _folder(suite: Path) -> Path:
    """Return the suite's folder; a worker elsewhere may not have it."""
    return suite if suite.is_dir() else Path(tempfile.gettempdir())
