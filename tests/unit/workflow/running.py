"""Run workflows that a test writes, with a function in the place of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from evalcore.errors import EvalError
from evalcore.formats.documents import parse_document
from evalcore.model.assertion import Assertion, AssertionResult, Outcome
from evalcore.model.evidence import Metrics
from evalcore.model.exchange import Reply, Request
from evalcore.providers.registry import open_session, send
from evalcore.trust.imports import ImportPolicy
from evalcore.workflow.context import EngineServices, SoulAnswer
from evalcore.workflow.definition import Soul
from evalcore.workflow.engine import Finished, Fixtures, run_workflow
from evalcore.workflow.events import Event, Snapshot
from evalcore.workflow.reading import read_definition
from evalcore.workflow.run_store import MemoryRunStore

Model = Callable[[Soul, str], str | SoulAnswer]


def echo(_: Soul, prompt: str) -> str:
    return prompt


@dataclass
class Ran:
    """One execution: what it left, or how it failed, and what was recorded of it."""

    finished: Finished | None
    error: EvalError | None
    events: tuple[Event, ...]
    snapshot: Snapshot
    asked: list[tuple[Soul, tuple[Mapping[str, Any], ...]]] = field(default_factory=list)

    @property
    def left(self) -> Finished:
        assert self.finished is not None, self.error
        return self.finished

    @property
    def outputs(self) -> dict[str, Any]:
        return dict(self.left.outputs)

    @property
    def message(self) -> str:
        assert self.error is not None
        return str(self.error)

    def blocks(self) -> list[str]:
        """Return the blocks in the order in which they began."""
        return [event.block or "" for event in self.events if event.type == "block_started"]

    def of(self, type_: str) -> list[Event]:
        return [event for event in self.events if event.type == type_]


def read(text: str) -> dict[str, Any]:
    value: dict[str, Any] = parse_document(dedent(text).encode(), "workflow.yaml").value
    return value


async def send_once(request: Request) -> Reply:
    async with open_session() as session:
        return await send(session, request)


async def always_passes(
    assertions: Sequence[Assertion], output: str, metrics: Metrics
) -> Sequence[AssertionResult]:
    del output, metrics
    return [
        AssertionResult(a.name, a.type, None, Outcome.PASSED, 1.0, 1.0, None, None, None, "")
        for a in assertions
    ]


def run(
    text: str | Mapping[str, Any],
    inputs: Mapping[str, Any] | None = None,
    *,
    model: Model = echo,
    given: Fixtures | None = None,
    folder: Path | None = None,
    workflows: Mapping[str, str] | None = None,
    checks: Mapping[str, tuple[Assertion, ...]] | None = None,
    of_service: bool = False,
) -> Ran:
    raw = read(text) if isinstance(text, str) else text
    store = MemoryRunStore()
    asked: list[tuple[Soul, tuple[Mapping[str, Any], ...]]] = []

    async def ask(soul: Soul, messages: Sequence[Mapping[str, Any]]) -> SoulAnswer:
        asked.append((soul, tuple(messages)))
        said = model(soul, messages[-1]["content"])
        return (
            said
            if isinstance(said, SoulAnswer)
            else SoulAnswer(said, "test", soul.model_name or "m")
        )

    place = folder or Path.cwd()
    services = EngineServices(
        ask=ask,
        complete=send_once,
        folder=place,
        imports=ImportPolicy((place,)),
        store=store,
        check=always_passes,
        workflows={name: read_definition(read(other)) for name, other in (workflows or {}).items()},
        of_service=of_service,
    )

    async def execute() -> Ran:
        finished, failure = None, None
        try:
            definition = read_definition(raw, checks or {})
            finished = await run_workflow(definition, inputs or {}, services, given)
        except EvalError as error:
            failure = error
        snapshot = await store.load_snapshot()
        assert snapshot is not None
        return Ran(finished, failure, await store.load_events(), snapshot, asked)

    return asyncio.run(execute())
