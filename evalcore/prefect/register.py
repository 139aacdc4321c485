"""Registers deployments, work pools and rate limits with a Prefect server, idempotently.

Each function compares what the server has with what is wanted, changes only what differs (nothing
at all if `dry`), and returns what it did.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import (
    DeploymentScheduleCreate,
    GlobalConcurrencyLimitCreate,
    GlobalConcurrencyLimitUpdate,
    WorkPoolCreate,
    WorkPoolUpdate,
)
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound

from evalcore.errors import UsageError
from evalcore.mistakes.wording import did_you_mean
from evalcore.model.suite import ProviderLimits
from evalcore.prefect.changes import CHANGED, CREATED, UNCHANGED, Registration, compare
from evalcore.prefect.definitions import FOLDER, NIGHTLY, Definition, NightChoice
from evalcore.version import VERSION

POOL = "evalcore"
# Of `deployments/kubernetes`.
NAMESPACE = "evalcore"
KUBERNETES_JOB = FOLDER / "job-template.yaml"
# A limit holds the slots of so many seconds, which may be taken at once.
BURST_S = 6.0

NOTHING_CHOSEN = NightChoice()

_WORKING_FOLDER = "prefect.deployments.steps.set_working_directory"


@dataclass(frozen=True)
class WorkerEnvironment:
    """The environment of flow runs: a pool, the folder there, the image of containers."""

    pool: str
    type: str
    folder: Path
    image: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def job_variables(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return what the pool's job template is filled with for a deployment."""
        variables: dict[str, Any] = {"env": {**environment, **self.environment}}
        if self.image is not None:
            variables["image"] = self.image
        return variables


def pool_name(pool: str, pool_type: str) -> str:
    """Return the name of the pool of a type: the process pool has the plain one."""
    return pool if pool_type == "process" else f"{pool}-{pool_type}"


def register_pool(
    client: SyncPrefectClient, name: str, pool_type: str, *, dry: bool
) -> Registration:
    """Register a work pool; raise `UsageError` if there is one of another type.

    Its job template is only written when the pool is made: what a person made of it stays, but for
    Kubernetes' job, which is ours.
    """
    template = job_template(pool_type)
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        if not dry:
            pool_to_create = WorkPoolCreate(name=name, type=pool_type, base_job_template=template)
            client.create_work_pool(pool_to_create)
        return Registration("work pool", name, CREATED)
    if pool.type != pool_type:
        message = (
            f"work pool '{name}' is of type {pool.type}, not {pool_type}; another name is given "
            "with --pool"
        )
        raise UsageError(message)
    ours = template["job_configuration"].get("job_manifest")
    current = pool.base_job_template
    if ours is None or current.get("job_configuration", {}).get("job_manifest") == ours:
        return Registration("work pool", name, UNCHANGED)
    if not dry:
        merged = {**current, "job_configuration": template["job_configuration"]}
        client.update_work_pool(name, WorkPoolUpdate(base_job_template=merged))
    return Registration("work pool", name, CHANGED, ("job template",))


def job_template(pool_type: str) -> dict[str, Any]:
    """Return the base job template of a pool type, as Prefect ships it; Kubernetes' job is ours."""
    import prefect

    # The server's own answer may come from the internet; to import the server takes seconds.
    data = Path(prefect.__file__).parent / "server" / "api" / "collections_data" / "views"
    collections = json.loads((data / "aggregate-worker-metadata.json").read_text("utf-8"))
    workers = {kind: worker for kinds in collections.values() for kind, worker in kinds.items()}
    template: dict[str, Any] = workers[pool_type]["default_base_job_configuration"]
    if pool_type == "kubernetes":
        manifest = yaml.safe_load(KUBERNETES_JOB.read_text("utf-8"))
        template["job_configuration"]["job_manifest"] = manifest
        template["variables"]["properties"]["namespace"]["default"] = NAMESPACE
    return template


def register_deployment(
    client: SyncPrefectClient,
    definition: Definition,
    environment: WorkerEnvironment,
    *,
    choice: NightChoice = NOTHING_CHOSEN,
    reset: bool = False,
    keep: bool = False,
    dry: bool,
) -> Registration:
    """Register a deployment; raise `UsageError` for a schedule that cannot be.

    Parameters, schedules and variables that are registered stay, but for what is chosen; with
    `keep` also what is chosen. `reset` puts those of the definition in their place.
    """
    declared_choice = choice if definition.name == NIGHTLY else NOTHING_CHOSEN
    definition = declared_choice.definition(definition)
    flow = getattr(import_module(definition.module), definition.function)
    schema = flow.parameters.model_dump(mode="json", exclude_unset=True)
    # The server refuses a parameter that the flow does not have, with the names of those it has.
    schema["propertyNames"] = {"enum": [*schema["properties"]]}
    declared = _declared(definition, environment) | {"parameter_openapi_schema": schema}
    name = f"{flow.name}/{definition.name}"
    try:
        before = _registered(client.read_deployment_by_name(name))
    except ObjectNotFound:
        before = None
    own = declared
    if before is not None and not reset:
        changing = NOTHING_CHOSEN if keep else declared_choice
        declared = own | _registered_choices(before, own, changing, environment)
    change = compare("deployment", name, before, declared)
    change = change._replace(details=_details(change.fields, before or {}, declared, own))
    if change.did == UNCHANGED or dry:
        return change
    options = None
    if definition.limit is not None:
        strategy = ConcurrencyLimitStrategy(definition.collision)
        options = ConcurrencyOptions(collision_strategy=strategy)
    client.create_deployment(
        flow_id=client.create_flow_from_name(flow.name),
        name=definition.name,
        schedules=[
            DeploymentScheduleCreate.model_validate(schedule) for schedule in declared["schedules"]
        ],
        concurrency_limit=definition.limit,
        concurrency_options=options,
        paused=False if before is None else None,
        **{key: declared[key] for key in _PLAIN},
    )
    return change


def _registered_choices(
    before: Mapping[str, Any],
    declared: Mapping[str, Any],
    choice: NightChoice,
    environment: WorkerEnvironment,
) -> dict[str, Any]:
    """Return the fields that a person may have changed, as they are, with what is chosen."""
    schedules = choice.schedules(before["schedules"])
    had_suites = bool(before["parameters"].get("suites"))
    begins = choice.cron or choice.timezone or (choice.suites and not had_suites)
    # Else a person has removed them.
    if begins and not before["schedules"]:
        schedules = declared["schedules"]
    variables = before["job_variables"] or {}
    declared_variables = declared["job_variables"]
    env = {**declared_variables["env"], **variables.get("env", {}), **environment.environment}
    return {
        "parameters": choice.parameters(before["parameters"]),
        "schedules": schedules,
        "job_variables": {**variables, **declared_variables, "env": env},
    }


_DESCRIBED_FIELDS = (
    "parameters",
    "schedules",
    "work_pool_name",
    "entrypoint",
    "pull_steps",
    "limit",
)


def _details(
    fields: Sequence[str],
    before: Mapping[str, Any],
    declared: Mapping[str, Any],
    own: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return what changed fields were and are, and which registered values stay."""
    changed = (
        f"{key}: {_described(key, before.get(key))} → {_described(key, declared[key])}"
        for key in fields
        if key in _DESCRIBED_FIELDS
    )
    stay = (
        f"keeps {key}: {_described(key, declared[key])}; evalcore's own: "
        f"{_described(key, own[key])} (--reset overwrites)"
        for key in ("parameters", "schedules")
        if declared[key] != own[key]
    )
    return (*changed, *stay)


def _described(field: str, value: Any) -> str:
    """Return a field of a deployment in a few words."""
    if field == "schedules":
        return ", ".join(_described_schedule(each) for each in value or ()) or "none"
    if field == "pull_steps":
        folders = [
            step[_WORKING_FOLDER]["directory"] for step in value or () if _WORKING_FOLDER in step
        ]
        return ", ".join(folders) or "none"
    return json.dumps(value, ensure_ascii=False) if value else "none"


def _described_schedule(registered: Mapping[str, Any]) -> str:
    schedule = registered["schedule"]
    when = schedule.get("cron") or json.dumps(schedule)
    zone = f" {schedule['timezone']}" if "cron" in schedule and schedule.get("timezone") else ""
    return f"{when}{zone}" + ("" if registered["active"] else " (paused)")


# Fields that a deployment is asked for, and told with, under the same name.
_PLAIN = (
    "version",
    "description",
    "tags",
    "work_pool_name",
    "entrypoint",
    "parameters",
    "pull_steps",
    "job_variables",
    "parameter_openapi_schema",
    "enforce_parameter_schema",
)


def _declared(definition: Definition, environment: WorkerEnvironment) -> dict[str, Any]:
    return {
        "version": VERSION,
        "description": definition.description,
        "tags": list(definition.tags),
        "work_pool_name": environment.pool,
        "entrypoint": definition.entrypoint,
        "parameters": dict(definition.parameters),
        "pull_steps": [{_WORKING_FOLDER: {"directory": str(environment.folder)}}],
        "job_variables": environment.job_variables(definition.environment),
        "enforce_parameter_schema": True,
        "limit": definition.limit,
        "collision": None if definition.limit is None else definition.collision,
        "schedules": [
            _compared_schedule(
                cron_schedule(schedule.cron, schedule.timezone), schedule.active, schedule.slug
            )
            for schedule in definition.schedules
        ],
    }


def cron_schedule(cron: str, timezone: str) -> CronSchedule:
    """Return a schedule; raise `UsageError` if there is none such."""
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValueError as error:
        if timezone not in available_timezones():
            hint = did_you_mean(timezone, available_timezones())
            message = f"--timezone: there is no time zone '{timezone}'.{hint}"
            raise UsageError(f"{message} Give its name, as Europe/Berlin") from error
        message = f"--cron: '{cron}' is no schedule; give five fields, as '0 2 * * *'"
        raise UsageError(message) from error


def _compared_schedule(schedule: Any, active: bool, slug: str | None) -> dict[str, Any]:
    """Return a schedule as far as it has a meaning; one of a person may be of any kind."""
    fields = schedule.model_dump(mode="json", exclude_none=True)
    fields.pop("day_or", None)  # cron's own meaning by default
    return {"schedule": fields, "active": active, "slug": slug}


def _registered(deployment: DeploymentResponse) -> dict[str, Any]:
    limit, options = deployment.global_concurrency_limit, deployment.concurrency_options
    fields: dict[str, Any] = {key: getattr(deployment, key, None) for key in _PLAIN}
    schedules = [
        _compared_schedule(schedule.schedule, schedule.active, schedule.slug)
        for schedule in deployment.schedules
    ]
    return fields | {
        "limit": None if limit is None else limit.limit,
        "collision": None if options is None else str(options.collision_strategy.value),
        "schedules": schedules,
    }


def wanted_limits(providers: Mapping[str, ProviderLimits]) -> dict[str, float]:
    """Return the global limits that providers' own make, by name: slots that return a second."""
    rates: dict[str, float] = {}
    for name, bounds in providers.items():
        if bounds.requests_per_minute is not None:
            rates[f"evalcore-{name}-requests"] = bounds.requests_per_minute / 60
        if bounds.tokens_per_minute is not None:
            rates[f"evalcore-{name}-tokens"] = bounds.tokens_per_minute / 60
    return rates


def register_limit(
    client: SyncPrefectClient, name: str, per_s: float, *, dry: bool
) -> Registration:
    """Register a global limit of so many slots a second; slots that are taken stay taken."""
    declared = {
        "limit": max(1, math.ceil(per_s * BURST_S)),
        "slot_decay_per_second": per_s,
        "active": True,
    }
    try:
        before = client.read_global_concurrency_limit_by_name(name).model_dump()
    except ObjectNotFound:
        before = None
    change = compare("rate limit", name, before, declared)
    if dry or change.did == UNCHANGED:
        return change
    if before is None:
        client.create_global_concurrency_limit(
            GlobalConcurrencyLimitCreate.model_validate({"name": name} | declared)
        )
    else:
        client.update_global_concurrency_limit(
            name, GlobalConcurrencyLimitUpdate.model_validate(declared)
        )
    return change
