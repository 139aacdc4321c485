"""What the engine uses from outside: providers, Python, files, where events go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import UNMEASURED, Metrics
from evalcore.model.exchange import Complete
from evalcore.trust.imports import ImportPolicy
from evalcore.workflow.definition import WorkflowDefinition
from evalcore.workflow.run_store import MemoryRunStore, RunStore
from evalcore.workflow.souls import Soul


class SoulAnswer(NamedTuple):
    """What a soul answered, who gave it, and what it took."""

    text: str
    provider: str
    model: str
    metrics: Metrics = UNMEASURED
    attempts: int = 1
    recorded: bool = False
    tool_calls: tuple[Mapping[str, Any], ...] = ()


class Offer(NamedTuple):
    """Tools that a model may call in one turn, and `tool_choice` in OpenAI's words."""

    tools: tuple[Mapping[str, Any], ...] = ()
    choice: str | None = None


NO_OFFER = Offer()

Ask = Callable[[Soul, Sequence[Mapping[str, Any]], Offer], Awaitable[SoulAnswer]]
"""Returns a soul's answer to messages; errors are `EvalError`s."""

Check = Callable[[Sequence[Assertion], str, Metrics], Awaitable[Sequence[AssertionResult]]]
"""Checks a block's own assertions on its output."""


@dataclass(frozen=True, slots=True)
class EngineServices:
    """What an execution uses.

    `complete` makes plain HTTP requests. `workflows` are those that `workflow_ref` may name.
    `steps` takes a record of each run of a block (`workflow.recorded_steps`), if it is a list.
    A workflow `of_service` was registered by a caller without access to this machine: it reaches
    public addresses, reads variables that the settings name and no files, and its code is confined.
    """

    ask: Ask
    complete: Complete
    folder: Path
    imports: ImportPolicy = field(default_factory=ImportPolicy)
    store: RunStore = field(default_factory=MemoryRunStore)
    check: Check | None = None
    workflows: Mapping[str, WorkflowDefinition] = field(default_factory=dict)
    steps: list[dict[str, Any]] | None = None
    of_service: bool = False
