"""Automations: a killed flow run is noticed, a failed gate is reported to a webhook.

As `evalcore.prefect.register`: compared first, changed only where something differs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from pydantic import SecretStr

from evalcore.prefect.changes import CHANGED, CREATED, UNCHANGED, Registration, compare

LOST = "evalcore: a flow run's heartbeats stopped"
GATE_FAILED = "evalcore: a gate failed"
CRASHED = "evalcore: a flow run crashed"
WEBHOOK_BLOCK = "evalcore"

# Three heartbeats (`prefect.yaml`).
_SILENT = timedelta(seconds=90)
_HEARTBEAT = "prefect.flow-run.heartbeat"
_ENDED = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
_OURS = {"prefect.resource.role": "tag", "prefect.resource.id": "prefect.tag.evalcore"}
_RESOURCE = "prefect.resource.id"

_GATE_PAYLOAD = """\
{
  "event": {{ event.event | tojson }},
  "run": {{ event.resource.id | tojson }},
  "suite": {{ event.resource.get("evalcore.suite", "") | tojson }},
  "decision": {{ event.resource.get("evalcore.decision", "") | tojson }},
  "gate": {{ event.payload.get("gate", "") | tojson }},
  "message": {{ event.payload.get("message", "") | tojson }}
}"""
_CRASH_PAYLOAD = """\
{
  "event": {{ event.event | tojson }},
  "flow_run": {{ event.resource.id | tojson }},
  "name": {{ event.resource.name | tojson }}
}"""


def wanted_automations(webhook: UUID | None) -> tuple[AutomationCore, ...]:
    """Return the automations; those that report need the block of a webhook."""
    lost = AutomationCore(
        name=LOST,
        description="A flow run whose process was killed ends as Crashed after 90 s of silence.",
        trigger=EventTrigger(
            after={_HEARTBEAT},
            # What ends a flow run ends the wait for its heartbeats.
            expect={_HEARTBEAT, *_ENDED},
            match={_RESOURCE: "prefect.flow-run.*"},
            match_related=_OURS,
            for_each={_RESOURCE},
            posture=Posture.Proactive,
            threshold=1,
            within=_SILENT,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, message="no heartbeat for 90 s: its process is gone"
            )
        ],
    )
    if webhook is None:
        return (lost,)
    gate = AutomationCore(
        name=GATE_FAILED,
        description="Tells the webhook of each gate that did not pass.",
        trigger=EventTrigger(
            expect={"evalcore.gate.failed"},
            match={_RESOURCE: "evalcore.run.*"},
            posture=Posture.Reactive,
        ),
        actions=[CallWebhook(block_document_id=webhook, payload=_GATE_PAYLOAD)],
    )
    crashed = AutomationCore(
        name=CRASHED,
        description="Tells the webhook of each flow run that crashed.",
        trigger=EventTrigger(
            expect={"prefect.flow-run.Crashed"},
            match={_RESOURCE: "prefect.flow-run.*"},
            match_related=_OURS,
            posture=Posture.Reactive,
        ),
        actions=[CallWebhook(block_document_id=webhook, payload=_CRASH_PAYLOAD)],
    )
    return (lost, gate, crashed)


def register_automation(
    client: SyncPrefectClient, automation: AutomationCore, *, dry: bool
) -> Registration:
    """Register an automation; one that a person disabled stays so."""
    existing = client.read_automations_by_name(automation.name)
    if not existing:
        if not dry:
            client.create_automation(automation)
        return Registration("automation", automation.name, CREATED)
    before = existing[0]
    change = compare("automation", automation.name, _compared(before), _compared(automation))
    if change.did == CHANGED and not dry:
        updated = automation.model_copy(update={"enabled": before.enabled})
        # The client leaves out what was not set by hand.
        full = AutomationCore.model_validate(updated.model_dump())
        client.update_automation(before.id, full)
    return change


def _compared(automation: AutomationCore) -> dict[str, Any]:
    """Return what has a meaning; a trigger's sets have no order, and its id is the server's."""
    trigger = automation.trigger.model_dump(exclude={"id"})
    return {
        "description": automation.description,
        "trigger": trigger,
        "actions": [action.model_dump() for action in automation.actions],
    }


def register_webhook(
    client: SyncPrefectClient, url: str | None, *, dry: bool
) -> tuple[UUID | None, Registration | None]:
    """Return the block's id and what was done; without a URL the block that is there stays.

    The id is None if there is none; one that would be made has a null id. The URL, which may be a
    secret, is kept as one.
    """
    existing = _webhook(client)
    identity = None if existing is None else existing[0]
    if url is None or (existing is not None and existing[1] == url):
        unchanged = None if existing is None else Registration("webhook", WEBHOOK_BLOCK, UNCHANGED)
        return identity, unchanged
    if dry:
        identity = identity or UUID(int=0)
    else:
        block = Webhook(url=SecretStr(url))
        identity = block.save(WEBHOOK_BLOCK, overwrite=True)  # type: ignore[assignment]  # sync here
    if existing is None:
        return identity, Registration("webhook", WEBHOOK_BLOCK, CREATED)
    return identity, Registration("webhook", WEBHOOK_BLOCK, CHANGED, ("url",))


def _webhook(client: SyncPrefectClient) -> tuple[UUID, str] | None:
    """Return the block's id and its URL."""
    for document in client.read_block_documents_by_type("webhook"):
        if document.name == WEBHOOK_BLOCK:
            data = client.read_block_document(document.id, include_secrets=True).data
            return document.id, str(data.get("url", ""))
    return None
