"""The table of tools: the name of each, the route that it calls, and what a model should know.

Schemas and annotations are derived from the routes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from evalcore.service.routes import eval_runs, evals


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool. `advice` follows the documentation of the route in the tool's description."""

    name: str
    title: str
    endpoint: Callable[..., Any]
    advice: str


TOOL_TABLE: Final = (
    ToolRow(
        "workflows_evals_create",
        "Save an eval",
        evals.create,
        "`target` names the block. `source` has its inputs by handle (`type: manual`), or the "
        "workflow run whose step received them (`type: run_step`). `assertion` is one condition "
        "on one output handle, such as `{target: {output_handle_id: output-json-0, path: total}, "
        "condition: {kind: equals, expected: 42}}`; without `path` it is on the whole output. "
        "Saving runs nothing: call `workflows_evals_runs_create` next.",
    ),
    ToolRow(
        "workflows_evals_list",
        "List saved evals",
        evals.list_all,
        "Each has its drift, its freshness and its latest outcome. For the next page pass "
        "`list_metadata.after` as `after`; null means that there is none.",
    ),
    ToolRow(
        "workflows_evals_get",
        "Get a saved eval",
        evals.get,
        "`assertion_drift_status: broken` means that the asserted path left the block's output; "
        "`freshness: stale` means that the eval should run again.",
    ),
    ToolRow(
        "workflows_evals_update",
        "Change a saved eval",
        evals.update,
        "`target`, `source` and `assertion` are replaced as a whole where they occur, and cannot "
        "be null. `name: null` takes the name away. Earlier results stay as they are.",
    ),
    ToolRow(
        "workflows_evals_delete",
        "Delete a saved eval",
        evals.delete,
        "This cannot be undone.",
    ),
    ToolRow(
        "workflows_evals_runs_create",
        "Run saved evals",
        eval_runs.create_run,
        "Without `scope` every saved eval of the workflow runs; `{type: block, block_id}` and "
        "`{type: single, eval_id}` select fewer. The call returns at once: read the run with "
        "`workflows_evals_runs_get` until its lifecycle is completed, error or cancelled. With "
        "`idempotency_key`, a repeated call returns the same run.",
    ),
    ToolRow(
        "workflows_evals_runs_get",
        "Get a run of evals",
        eval_runs.get_run,
        "`counts.outcome` has the completed evals: passed, failed, or blocked (could not be "
        "evaluated). Evals whose execution failed are in `counts.lifecycle_counts.error`. The "
        "reasons are in `workflows_evals_results_list`.",
    ),
    ToolRow(
        "workflows_evals_results_list",
        "List results of evals",
        eval_runs.list_results,
        "Pass `run_id` for the results of one run. `assertion_result` has the actual value, the "
        "expected value, and why the assertion failed or is blocked. For the next page pass "
        "`list_metadata.after` as `after`; null means that there is none.",
    ),
    ToolRow(
        "workflows_evals_results_get",
        "Get a result of an eval",
        eval_runs.get_result,
        "It has the inputs and outputs of the block, the verdict and the reason for it.",
    ),
)
