"""What is registered with Prefect: read from `prefect.yaml`, which `prefect deploy` reads, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent / "data"
NIGHTLY = "nightly"


@dataclass(frozen=True)
class Schedule:
    """When a deployment runs by itself."""

    cron: str
    timezone: str
    slug: str
    active: bool = True


@dataclass(frozen=True)
class Definition:
    """One deployment: a flow, what it is asked for, and how many of its runs go at once.

    `entrypoint` is `MODULE.FUNCTION`. `collision` says what happens to one run too many:
    ENQUEUE or CANCEL_NEW.
    """

    name: str
    entrypoint: str
    description: str
    tags: tuple[str, ...]
    limit: int | None = None
    collision: str = "ENQUEUE"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module that the flow is imported from."""
        return self.entrypoint.rpartition(".")[0]

    @property
    def function(self) -> str:
        """The flow's name in its module."""
        return self.entrypoint.rpartition(".")[2]


def read_definitions(path: Path = FOLDER / "prefect.yaml") -> tuple[Definition, ...]:
    """Return the deployments of the file, in its order."""
    rows = yaml.safe_load(path.read_text("utf-8"))["deployments"]
    return tuple(_definition(row) for row in rows)


def _definition(row: Mapping[str, Any]) -> Definition:
    bound = row.get("concurrency_limit") or {}
    variables = row["work_pool"].get("job_variables") or {}
    return Definition(
        name=row["name"],
        entrypoint=row["entrypoint"],
        description=row["description"],
        tags=tuple(row["tags"]),
        limit=bound.get("limit"),
        collision=bound.get("collision_strategy", "ENQUEUE"),
        parameters=row.get("parameters") or {},
        schedules=tuple(Schedule(**schedule) for schedule in row.get("schedules") or ()),
        environment=variables.get("env") or {},
    )


@dataclass(frozen=True)
class NightChoice:
    """What a caller wants of the nightly deployment; what is empty stays as it is."""

    suites: tuple[str, ...] = ()
    cron: str | None = None
    timezone: str | None = None

    def definition(self, definition: Definition) -> Definition:
        """Return the nightly definition with the choice in it, any other one as it is."""
        if definition.name != NIGHTLY:
            return definition
        schedules = tuple(
            replace(
                schedule,
                cron=self.cron or schedule.cron,
                timezone=self.timezone or schedule.timezone,
            )
            for schedule in definition.schedules
        )
        return replace(
            definition, parameters=self.parameters(definition.parameters), schedules=schedules
        )

    def parameters(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters with the chosen suites in them."""
        return {**parameters, **({"suites": list(self.suites)} if self.suites else {})}

    def schedules(self, registered: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return registered schedules with the chosen times in those that are of cron."""
        chosen = {"cron": self.cron, "timezone": self.timezone}
        laid_over = {name: text for name, text in chosen.items() if text is not None}
        return [
            {**each, "schedule": {**each["schedule"], **laid_over}}
            if "cron" in each["schedule"]
            else dict(each)
            for each in registered
        ]


def without_missing_suites(definition: Definition, missing: Sequence[str]) -> Definition:
    """Return a definition without the suites that are not there; without any it has no schedule."""
    suites = definition.parameters.get("suites")
    if not suites or not missing:
        return definition
    present = [suite for suite in suites if suite not in missing]
    others = {name: value for name, value in definition.parameters.items() if name != "suites"}
    if present:
        return replace(definition, parameters={**others, "suites": present})
    return replace(definition, parameters=others, schedules=())
