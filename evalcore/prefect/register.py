"""Registers a work pool, deployments and an automation with a Prefect server.

Each is compared with what the server has, and changed only where it differs. What a person chose
for a deployment (parameters, schedules, variables) stays, and the difference is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyOptions
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound

from evalcore.errors import UsageError
from evalcore.prefect.collection import VARIABLES, enter_folder
from evalcore.version import VERSION

DATA: Final = Path(__file__).resolve().parent / "data"
_NIGHT: Final = "nightly/nightly"
# Fields of a deployment whose change is shown with both values.
_SHOWN: Final = ("parameters", "schedules", "work_pool_name", "entrypoint", "pull_steps")

_Found = TypeVar("_Found")


@dataclass
class Registrar:
    """Registers one thing after another; the fields are the options of `evalcore deploy`.

    `lines` say what it did to each thing; `done` of the `things` were created or changed.
    """

    client: SyncPrefectClient
    pool: str
    folder: Path
    store_block: str | None
    suites: tuple[str, ...]
    dry: bool
    lines: list[str] = field(default_factory=list)
    things: int = 0
    done: int = 0

    def register_all(self) -> None:
        """Register everything; raise `UsageError` for a mistake before anything is registered."""
        variables = self._store_variables()
        pool = _find(self.client.read_work_pool, self.pool)
        create = WorkPoolCreate(name=self.pool, type="process")
        self._apply(
            f"work pool {self.pool}",
            None if pool is None else {},
            {},
            lambda: self.client.create_work_pool(create),
        )
        for row in yaml.safe_load((DATA / "prefect.yaml").read_text("utf-8"))["deployments"]:
            self._register_deployment(row, variables)
        self._register_automation(DATA / "automations" / "heartbeats.yaml")

    def _store_variables(self) -> dict[str, str]:
        """Return variables of flow runs that Prefect's workers fill from a block."""
        if (name := self.store_block) is None:
            return {}
        try:
            block = self.client.read_block_document_by_name(name, "evalcore-store")
        except ObjectNotFound:
            raise UsageError(
                f"--store-block {name}: no such block; `prefect block register -m "
                "evalcore.prefect.collection`, then `prefect block create evalcore-store`"
            ) from None
        return {
            variable: f"{{{{ prefect.blocks.evalcore-store.{name}.{own} }}}}"
            for variable, own in VARIABLES.items()
            if block.data.get(own) is not None
        }

    def _apply(
        self,
        thing: str,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        write: Callable[[], object],
    ) -> None:
        """Call `write` unless the thing is as it should be; note which fields differed."""
        fields = [key for key in after if before is not None and before.get(key) != after[key]]
        did = "created" if before is None else "changed" if fields else "unchanged"
        self.things += 1
        if did != "unchanged":
            self.done += 1
            if not self.dry:
                write()
        listed = f" ({', '.join(fields)})" if fields else ""
        self.lines.append(f"{did:<10} {thing}{listed}")

    def _register_deployment(self, row: dict[str, Any], variables: Mapping[str, str]) -> None:
        """Register a deployment of `prefect.yaml`; what a person may have changed stays."""
        module, _, function = row["entrypoint"].rpartition(".")
        flow = getattr(import_module(module), function)
        name = f"{flow.name}/{row['name']}"
        schema = flow.parameters.model_dump(mode="json", exclude_unset=True)
        # The server refuses other parameters with a list of these.
        schema["propertyNames"] = {"enum": list(schema["properties"])}
        bound = row.get("concurrency_limit", {})
        step = {"directory": str(self.folder)}
        chosen = {"suites": list(self.suites)} if name == _NIGHT and self.suites else {}
        own = {
            "version": VERSION,
            "description": row["description"],
            "tags": row["tags"],
            "work_pool_name": self.pool,
            "entrypoint": row["entrypoint"],
            "parameters": row.get("parameters", {}) | chosen,
            "pull_steps": [{f"{enter_folder.__module__}.{enter_folder.__name__}": step}],
            "job_variables": {"env": {**row["work_pool"]["job_variables"]["env"], **variables}},
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
                for each in row.get("schedules", [])
            ],
        }
        before, after = None, own
        if (found := _find(self.client.read_deployment_by_name, name)) is not None:
            limit, options = found.global_concurrency_limit, found.concurrency_options
            before = {key: getattr(found, key, None) for key in own} | {
                "limit": limit and limit.limit,
                "collision": options and str(options.collision_strategy.value),
                "schedules": [_compared_schedule(each) for each in found.schedules],
            }
            kept = before["job_variables"] or {}
            env = {**own["job_variables"]["env"], **kept.get("env", {}), **variables}
            after = own | {
                "parameters": before["parameters"] | chosen,
                "schedules": before["schedules"],
                "job_variables": {**kept, "env": env},
            }

        def write() -> None:
            fields = after.copy()
            limit, strategy = fields.pop("limit"), fields.pop("collision")
            self.client.create_deployment(
                flow_id=self.client.create_flow_from_name(flow.name),
                name=row["name"],
                schedules=[DeploymentScheduleCreate(**each) for each in fields.pop("schedules")],
                concurrency_limit=limit,
                concurrency_options=limit and ConcurrencyOptions(collision_strategy=strategy),
                paused=False if before is None else None,
                **fields,
            )

        self._apply(f"deployment {name}", before, after, write)
        for key in _SHOWN:
            if before is not None and before[key] != after[key]:
                change = f"{_described(before[key])} → {_described(after[key])}"
                self.lines.append(f"{'':<10} {key}: {change}")
            elif after[key] != own[key]:
                kept = f"{_described(after[key])}; evalcore's own: {_described(own[key])}"
                self.lines.append(f"{'':<10} keeps {key}: {kept}")

    def _register_automation(self, path: Path) -> None:
        """Register an automation; one that a person disabled stays so."""
        read = AutomationCore.model_validate(yaml.safe_load(path.read_text("utf-8")))
        # The client leaves out what was not set by hand.
        after = AutomationCore.model_validate(read.model_dump(exclude={"owner_resource"}))
        found = next(iter(self.client.read_automations_by_name(after.name)), None)

        def write() -> None:
            if found is None:
                self.client.create_automation(after)
            else:
                after.enabled = found.enabled
                self.client.update_automation(found.id, after)

        before = None if found is None else _compared_automation(found)
        self._apply(f"automation {after.name}", before, _compared_automation(after), write)


def _find(read: Callable[[str], _Found], name: str) -> _Found | None:
    try:
        return read(name)
    except ObjectNotFound:
        return None


def _compared_schedule(one: Any) -> dict[str, Any]:
    """Return a schedule as far as it has a meaning; one of a person may be of any kind."""
    # `day_or` is cron's own meaning by default.
    fields = one.schedule.model_dump(mode="json", exclude_none=True, exclude={"day_or"})
    return {"schedule": fields, "active": one.active, "slug": one.slug}


def _compared_automation(automation: AutomationCore) -> dict[str, Any]:
    fields = {"description", "trigger", "actions"}
    return automation.model_dump(include=fields, exclude={"trigger": {"id"}})


def _described(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else "none"
