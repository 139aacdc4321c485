"""The target `block`: one block of a workflow, run on inputs that a saved eval froze."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence, Metrics
from evalcore.targets.work import Work
from evalcore.targets.workflow import WorkflowOptions, WorkflowTarget
from evalcore.workflow.events import NO_EXECUTOR, NoExecutorError, sum_calls
from evalcore.workflow.replay import replay_block
from evalcore.workflow.values import text_of

HANDLE_OUTPUTS: Final = "handle_outputs"

__all__ = ["ReplayedBlock", "WorkflowOptions"]


class ReplayedBlock(WorkflowTarget):
    """Replays a block; the case's input is `{block_id, handle_inputs}`."""

    async def answer(self, work: Work) -> Evidence:
        """Return the block's output; the details have all of its output handles.

        Raises `WorkflowError` if the block fails, and what a workflow's target raises beside it.
        """
        frozen = work.case.input
        if not isinstance(frozen, Mapping) or "block_id" not in frozen:
            raise TargetError("input", "the input of a saved eval is {block_id, handle_inputs}")
        block_id, inputs = frozen["block_id"], frozen.get("handle_inputs") or {}
        values = {handle: _value(written) for handle, written in inputs.items()}
        started = time.perf_counter()
        try:
            replay = await replay_block(self.definition, block_id, values, self.services(work))
        except NoExecutorError as error:
            raise NoExecutorError(NO_EXECUTOR.format(id=work.case.id)) from error
        took_ms = round((time.perf_counter() - started) * 1000, 1)
        details: dict[str, Any] = {
            HANDLE_OUTPUTS: {
                handle: {"type": "json", "data": value} for handle, value in replay.outputs.items()
            }
        }
        if replay.calls:
            details["calls"] = [call.as_json() for call in replay.calls]
        return Evidence(
            output=text_of(replay.value),
            metrics=sum_calls(replay.calls) if replay.calls else Metrics(latency_ms=took_ms),
            details=details,
        )


def _value(handle: Any) -> Any:
    """Return the value of a handle as the block sees it; of a file its reference."""
    if isinstance(handle, Mapping) and handle.get("type") == "file":
        return handle.get("document")
    return handle.get("data") if isinstance(handle, Mapping) else handle
