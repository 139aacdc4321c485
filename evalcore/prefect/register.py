"""Registers a work pool, deployments, rate limits and automations with a Prefect server.

Each is compared with what the server has, and changed only where it differs. What a person chose
for a deployment (parameters, schedules, variables) stays, and the difference is shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import prefect
import yaml
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import ConcurrencyOptions
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound
from pydantic import SecretStr

from evalcore.errors import UsageError
from evalcore.model.suite import ProviderLimits
from evalcore.prefect.collection import VARIABLES
from evalcore.prefect.suites import missing_suites
from evalcore.version import VERSION

DATA: Final = Path(__file__).resolve().parent / "data"
UNCHANGED: Final = "unchanged"
NIGHT: Final = "nightly/nightly"
_WEBHOOK: Final = "evalcore"
# A rate limit holds the slots of so many seconds, which may be taken at once.
_BURST_S: Final = 6.0

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class DeployOptions:
    """The options of `evalcore deploy`."""

    pool: str
    type: str
    image: str | None
    folder: Path
    env: Mapping[str, str]
    store_block: str | None
    suites: tuple[str, ...]
    times: Mapping[str, str]
    webhook: str | None
    reset: bool
    keep: bool
    dry: bool

    @property
    def local_folder(self) -> Path | None:
        """The workers' folder, if it is one of this machine."""
        return self.folder if self.image is None and self.folder.is_dir() else None


class Change(NamedTuple):
    """What happened to one thing, in words, and lines about it."""

    did: str
    thing: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"\n{'':<11}".join((f"{self.did:<10} {self.thing}", *self.details))


class Registrar:
    """Registers one thing after another; `changes` says what it did to each."""

    def __init__(self, client: SyncPrefectClient, options: DeployOptions) -> None:
        self.changes: list[Change] = []
        self.night_suites: list[str] = []
        self._client = client
        self._options = options
        self._env = {**self._store_variables(), **options.env}
        self._pool = options.pool if options.type == "process" else f"{options.pool}-{options.type}"

    def _store_variables(self) -> dict[str, str]:
        """Return variables of flow runs that Prefect's workers fill from a block."""
        if (name := self._options.store_block) is None:
            return {}
        try:
            block = self._client.read_block_document_by_name(name, "evalcore-store")
        except ObjectNotFound:
            raise UsageError(
                f"--store-block {name}: no such block; `prefect block register -m "
                "evalcore.prefect.collection`, then `prefect block create evalcore-store`"
            ) from None
        return {
            variable: f"{{{{ prefect.blocks.evalcore-store.{name}.{field} }}}}"
            for variable, field in VARIABLES.items()
            if block.data.get(field) is not None
        }

    def register_all(self, providers: Mapping[str, ProviderLimits]) -> None:
        """Register everything; raise `UsageError` for a mistake before anything is registered."""
        rows = yaml.safe_load((DATA / "prefect.yaml").read_text("utf-8"))["deployments"]
        declared = dict(self._declare(row) for row in rows)
        self._register_pool()
        for name, fields in declared.items():
            self._register_deployment(name, fields)
        for name, bounds in providers.items():
            for unit in ("requests", "tokens"):
                if per_minute := getattr(bounds, f"{unit}_per_minute"):
                    self._register_rate(f"evalcore-{name}-{unit}", per_minute / 60)
        webhook = self._register_webhook()
        for path in sorted((DATA / "automations").glob("*.yaml")):
            self._register_automation(yaml.safe_load(path.read_text("utf-8")), webhook)

    def _apply(
        self,
        thing: str,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        write: Callable[[], object],
        details: tuple[str, ...] = (),
    ) -> None:
        """Call `write` unless the thing is as it should be; note what differed."""
        fields = [key for key in after if before is not None and before.get(key) != after[key]]
        did = "created" if before is None else "changed" if fields else UNCHANGED
        if did != UNCHANGED and not self._options.dry:
            write()
        listed = f" ({', '.join(fields)})" if fields else ""
        self.changes.append(Change(did, f"{thing}{listed}", details))

    def _register_pool(self) -> None:
        """Register the pool. The template of one that is there stays, but for Kubernetes' job."""
        kind, name, client = self._options.type, self._pool, self._client
        template = _job_template(kind)
        pool = _find(client.read_work_pool, name)
        if pool is not None and pool.type != kind:
            raise UsageError(
                f"work pool '{name}' is of type {pool.type}, not {kind}; name another with --pool"
            )
        jobs = "job_configuration"
        current = None if pool is None else pool.base_job_template
        before = current and {"job manifest": current[jobs].get("job_manifest")}

        def write() -> None:
            if current is None:
                create = WorkPoolCreate(name=name, type=kind, base_job_template=template)
                client.create_work_pool(create)
            else:
                merged = {**current, jobs: template[jobs]}
                client.update_work_pool(name, WorkPoolUpdate(base_job_template=merged))

        after = {"job manifest": template[jobs].get("job_manifest")}
        self._apply(f"work pool {name}", before, after, write)

    def _declare(self, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the name and the fields of a deployment as evalcore defines them."""
        options = self._options
        module, _, function = row["entrypoint"].rpartition(".")
        flow = getattr(import_module(module), function)
        name = f"{flow.name}/{row['name']}"
        parameters, schedules = row.get("parameters", {}), row.get("schedules", [])
        if name == NIGHT:
            suites = self._suites(parameters["suites"])
            parameters = {"suites": suites} if suites else {}
            schedules = [each | options.times for each in schedules] if suites else []
        schema = flow.parameters.model_dump(mode="json", exclude_unset=True)
        # The server refuses other parameters with a list of these.
        schema["propertyNames"] = {"enum": list(schema["properties"])}
        env = {"env": {**row["work_pool"]["job_variables"]["env"], **self._env}}
        bound = row.get("concurrency_limit", {})
        return name, {
            "version": VERSION,
            "description": row["description"],
            "tags": row["tags"],
            "work_pool_name": self._pool,
            "entrypoint": row["entrypoint"],
            "parameters": parameters,
            "pull_steps": [
                {
                    "prefect.deployments.steps.set_working_directory": {
                        "directory": str(options.folder)
                    }
                }
            ],
            "job_variables": env | ({"image": options.image} if options.image else {}),
            "parameter_openapi_schema": schema,
            "enforce_parameter_schema": True,
            "limit": bound.get("limit"),
            "collision": bound.get("collision_strategy"),
            "schedules": [
                {
                    "schedule": {"cron": each["cron"], "timezone": each["timezone"]},
                    "active": each["active"],
                    "slug": each["slug"],
                }
                for each in schedules
            ],
        }

    def _suites(self, usual: list[str]) -> list[str]:
        """Return the night's suites; raise `UsageError` for chosen ones that are not there."""
        options, suites = self._options, list(self._options.suites) or usual
        if (folder := options.local_folder) is None:
            return suites
        absent = missing_suites(suites, folder)
        if absent and options.suites and not options.keep:
            raise UsageError(f"--suites {absent[0]}: no file below {folder} matches")
        return [suite for suite in suites if suite not in absent]

    def _register_deployment(self, name: str, own: dict[str, Any]) -> None:
        client, flow = self._client, name.partition("/")[0]
        before, after = None, own
        if (found := _find(client.read_deployment_by_name, name)) is not None:
            limit, options = found.global_concurrency_limit, found.concurrency_options
            before = {key: getattr(found, key, None) for key in own} | {
                "limit": limit and limit.limit,
                "collision": options and str(options.collision_strategy.value),
                "schedules": [_compared_schedule(each) for each in found.schedules],
            }
            after = own if self._options.reset else own | self._kept(name, before, own)
        if name == NIGHT:
            self.night_suites = after["parameters"].get("suites", [])

        def write() -> None:
            fields = after.copy()
            limit, strategy = fields.pop("limit"), fields.pop("collision")
            schedules = [DeploymentScheduleCreate(**each) for each in fields.pop("schedules")]
            client.create_deployment(
                flow_id=client.create_flow_from_name(flow),
                name=name.partition("/")[2],
                schedules=schedules,
                concurrency_limit=limit,
                concurrency_options=limit and ConcurrencyOptions(collision_strategy=strategy),
                paused=False if before is None else None,
                **fields,
            )

        details = _differences(before or after, after, own)
        self._apply(f"deployment {name}", before, after, write, details)

    def _kept(self, name: str, before: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that a person may have changed, with what the options choose."""
        options = self._options
        choosing = name == NIGHT and not options.keep
        suites = own["parameters"] if choosing and options.suites else {}
        times = options.times if choosing else {}
        schedules = [
            {**each, "schedule": each["schedule"] | times} if "cron" in each["schedule"] else each
            for each in before["schedules"]
        ]
        begins = times or (suites and not before["parameters"].get("suites"))
        variables = before["job_variables"] or {}
        env = {**own["job_variables"]["env"], **variables.get("env", {}), **self._env}
        return {
            "parameters": before["parameters"] | suites,
            # Else a person has removed them.
            "schedules": schedules or (own["schedules"] if begins else []),
            "job_variables": {**variables, **own["job_variables"], "env": env},
        }

    def _register_rate(self, name: str, per_s: float) -> None:
        """Register a global limit of so many slots a second; slots that are taken stay taken."""
        client, slots = self._client, max(1, math.ceil(per_s * _BURST_S))
        found = _find(client.read_global_concurrency_limit_by_name, name)
        self._apply(
            f"rate limit {name}",
            None if found is None else found.model_dump(),
            {"limit": slots, "slot_decay_per_second": per_s},
            lambda: client.upsert_global_concurrency_limit_by_name(name, slots, per_s),
        )

    def _register_webhook(self) -> UUID | None:
        """Return the webhook's block, a null id in a dry run; without a URL none is made."""
        client, url = self._client, self._options.webhook

        def find() -> Any:
            documents = client.read_block_documents_by_type("webhook")
            found = [each.id for each in documents if each.name == _WEBHOOK]
            return client.read_block_document(found[0], include_secrets=True) if found else None

        if (found := find()) is None and url is None:
            return None
        before = None if found is None else {"url": found.data["url"]}
        block = Webhook(url=SecretStr(url or ""))
        self._apply(
            f"webhook {_WEBHOOK}",
            before,
            {"url": url} if url else before or {},
            lambda: block.save(_WEBHOOK, overwrite=True),
        )
        found = find()
        return found.id if found else UUID(int=0)

    def _register_automation(self, fields: dict[str, Any], webhook: UUID | None) -> None:
        """Register an automation; one that a person disabled stays so."""
        automation = AutomationCore.model_validate(fields)
        for action in automation.actions:
            if isinstance(action, CallWebhook):
                if webhook is None:
                    return
                action.block_document_id = webhook
        # The client leaves out what was not set by hand.
        after = AutomationCore.model_validate(automation.model_dump(exclude={"owner_resource"}))
        client = self._client
        found = next(iter(client.read_automations_by_name(after.name)), None)

        def write() -> None:
            if found is None:
                client.create_automation(after)
            else:
                after.enabled = found.enabled
                client.update_automation(found.id, after)

        before = None if found is None else _compared_automation(found)
        self._apply(f"automation {after.name}", before, _compared_automation(after), write)


def _find(read: Callable[[str], _Found], name: str) -> _Found | None:
    try:
        return read(name)
    except ObjectNotFound:
        return None


def _job_template(pool_type: str) -> dict[str, Any]:
    """Return the base job template of a pool type, as Prefect ships it; Kubernetes' job is ours."""
    # The server's own answer may come from the internet; to import the server takes seconds.
    views = Path(prefect.__file__).parent / "server" / "api" / "collections_data" / "views"
    collections = json.loads((views / "aggregate-worker-metadata.json").read_text("utf-8"))
    workers = {kind: worker for kinds in collections.values() for kind, worker in kinds.items()}
    template: dict[str, Any] = workers[pool_type]["default_base_job_configuration"]
    if pool_type == "kubernetes":
        manifest = yaml.safe_load((DATA / "job-template.yaml").read_text("utf-8"))
        template["job_configuration"]["job_manifest"] = manifest
        template["variables"]["properties"]["namespace"]["default"] = "evalcore"
    return template


def _compared_schedule(one: Any) -> dict[str, Any]:
    """Return a schedule as far as it has a meaning; one of a person may be of any kind."""
    # `day_or` is cron's own meaning by default.
    fields = one.schedule.model_dump(mode="json", exclude_none=True, exclude={"day_or"})
    return {"schedule": fields, "active": one.active, "slug": one.slug}


def _compared_automation(automation: AutomationCore) -> dict[str, Any]:
    fields = {"description", "trigger", "actions"}
    return automation.model_dump(include=fields, exclude={"trigger": {"id"}})


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return what changed fields were and are, and which registered values stay."""
    shown = ("parameters", "schedules", "work_pool_name", "entrypoint", "pull_steps", "limit")
    lines = [
        f"{key}: {_described(before[key])} → {_described(after[key])}"
        for key in shown
        if before[key] != after[key]
    ]
    for key in ("parameters", "schedules"):
        if after[key] != own[key]:
            kept, ours = _described(after[key]), _described(own[key])
            lines.append(f"keeps {key}: {kept}; evalcore's own: {ours} (--reset overwrites)")
    return tuple(lines)


def _described(value: Any) -> str:
    """Return a field of a deployment in a few words."""
    if not value:
        return "none"
    if not isinstance(value, list) or "schedule" not in value[0]:
        return json.dumps(value, ensure_ascii=False)
    return ", ".join(
        " ".join(str(each["schedule"][key]) for key in each["schedule"] if key != "anchor_date")
        + ("" if each["active"] else " (paused)")
        for each in value
    )
