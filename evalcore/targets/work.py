"""What a target is given for one work item, and how it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.model.evidence import NOTHING, Evidence
from evalcore.model.exchange import Complete, Endpoint, no_provider
from evalcore.model.suite import Case
from evalcore.model.target import Variant
from evalcore.targets.case_messages import Message, prompt_of
from evalcore.trust.attachments import with_file_texts
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.workflow.context import Check
    from evalcore.workflow.run_store import RunStore


@dataclass(frozen=True, slots=True)
class Work:
    """One work item as a target sees it.

    `iteration` counts from 0, `item` is the item's place in the plan. `messages` and `prompt` are
    `messages_of` the case's input and `prompt_of` those. `folder` is the suite's folder. The
    caller enforces `item_timeout_s`; a target that starts a process ends it at that time as well.
    `complete` calls providers. `objects` are what a suite made in Python refers to by name.
    `run_store` takes the events of an executed workflow, `check` grades an output of one of its
    blocks; None where they are not needed. `workspace` is the folder that the target works in, if
    the test has one. `workers` run Python in processes of its own; the item's time limit does not
    run while `standing_still` is entered.
    """

    case: Case
    variant: Variant
    iteration: int
    item: int
    prompt: str
    messages: tuple[Message, ...]
    folder: Path
    imports: ImportPolicy
    item_timeout_s: float | None = None
    mode: str = "live"
    complete: Complete = no_provider
    objects: Mapping[str, Any] = NOTHING
    run_store: RunStore | None = None
    check: Check | None = None
    workspace: Path | None = None
    workers: Workers = NO_WORKERS
    standing_still: Callable[[], AbstractContextManager[object]] = nullcontext


class Runnable(Protocol):
    """A target with its options, ready to answer any number of items at the same time."""

    def waits(self, case: Case) -> bool:
        """Whether answering the case may suspend; an answer without needs no event loop."""

    async def answer(self, work: Work) -> Evidence:
        """Return the evidence.

        Raises `TargetError` where there is no output; its kind and message stand in the item's row.
        """


@runtime_checkable
class AsksServers(Protocol):
    """A target that asks servers."""

    def ready_endpoints(self, case: Case, mode: str) -> Iterable[Endpoint]:
        """Return the endpoints of the servers without which the case has no answer.

        Raises `TargetError` or `UsageError` for a secret that is not set.
        """


def with_attachments(work: Work) -> Work:
    """Return the work with the text of attached files in its messages and its prompt."""
    messages = with_file_texts(work.messages, work.folder)
    if messages is work.messages:
        return work
    return replace(work, messages=tuple(messages), prompt=prompt_of(messages))
