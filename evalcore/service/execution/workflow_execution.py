"""One execution of a workflow by the engine: a run of one item in the store, with its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalcore.errors import EvalError, StoreError
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, Suite, SuiteDefinition
from evalcore.model.target import Target
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.states import cancel_run
from evalcore.planning.spool import CaseSpool
from evalcore.service.execution.end_signals import EndSignals, execute_until
from evalcore.service.execution.soul_providers import soul_providers
from evalcore.service.execution.stored_items import details_of, error_of, stored_items
from evalcore.service.fingerprints import fingerprint
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun
from evalcore.targets.workflow import STEPS

_CASE = "run"


@dataclass(frozen=True, slots=True)
class WorkflowOutcome:
    """What a workflow run left: its output and its steps, or an error and the steps until then."""

    output: Any
    steps: Sequence[Mapping[str, Any]]
    error: Mapping[str, str] | None


def execute_workflow(
    run: StoredRun, settings: Settings, end_signals: EndSignals
) -> WorkflowOutcome | None:
    """Execute a planned run of a workflow; return what it left, None if it was stopped.

    One that was executed before and not read is not executed again.
    """
    try:
        execute_until(run, settings, end_signals)
        if not run.store.exists(run.keys.result(0)):
            cancel_run(run, now=datetime.now(UTC))
            return None
        with finish_run(run, now=datetime.now(UTC), options=DecideOptions()):
            pass
    except StoreError:
        raise
    except EvalError:
        cancel_run(run, now=datetime.now(UTC))
        raise
    for _, rows in stored_items(run, set()):
        for row in rows:
            if row["status"] != "completed":
                return WorkflowOutcome(None, (), error_of(row))
            details = details_of(run, row)
            return WorkflowOutcome(
                details.get("value"), details.get(STEPS) or (), details.get("failure")
            )
    return None


def plan_workflow(
    run: StoredRun, workflow_id: str, definition: Mapping[str, Any], inputs: Mapping[str, Any]
) -> None:
    """Plan a run of a workflow under the id of `run`."""
    options = PlanOptions(single_items=True, run_id=run.run_id)
    plan_run(_suite(workflow_id, definition, inputs), run.store, options, now=datetime.now(UTC))


def runs_suite(workflow_id: str) -> str:
    """Return the name under which the runs of a workflow stand in the store."""
    return f"{workflow_id}-runs"


def _suite(workflow_id: str, definition: Mapping[str, Any], inputs: Mapping[str, Any]) -> Suite:
    spool = CaseSpool()
    spool.append(Case(id=_CASE, input=dict(inputs)))
    options = {
        "definition": dict(definition),
        "providers": soul_providers(definition),
        "record_steps": True,
        "of_service": True,
    }
    return Suite(
        SuiteDefinition(
            name=runs_suite(workflow_id),
            format=Format.WORKFLOW_EVALS,
            source=Source(f"workflow {workflow_id}", str(Path.cwd()), fingerprint(definition)),
            policy=Policy(score_rule=ScoreRule.BLOCKS, gates=()),
            targets={"workflow": Target("workflow", "workflow", options)},
            default_target="workflow",
        ),
        spool,
    )
