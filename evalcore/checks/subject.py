"""What a check sees, and how a check is called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.judging.asking import NO_JUDGES, Judges
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import NOTHING, Evidence, Metrics
from evalcore.model.exchange import Complete, no_provider
from evalcore.model.suite import Case
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.annotations.labels import LabelRecord


# Longer, and answers of providers would wait for the event loop.
_LONGEST_S = 0.003
_T = TypeVar("_T")


class GradingThread:
    """Runs in a thread what takes more than a few milliseconds, so that an event loop goes on.

    Created in the loop. One at a time: threads that compute take turns with the loop. `heavy` are
    the names of what is known to take long.
    """

    def __init__(self, heavy: Iterable[str] = ()) -> None:
        import asyncio

        self._slow = set(heavy)
        self._turn = asyncio.Lock()

    async def result(self, name: str, call: Callable[[], _T]) -> _T:
        """Return what a call gives; how long it takes is learnt by its `name`."""
        if name in self._slow:
            import asyncio

            async with self._turn:
                return await asyncio.to_thread(call)
        began = time.thread_time()
        value = call()
        if time.thread_time() - began > _LONGEST_S:
            self._slow.add(name)
        return value


def no_labels(_content: str) -> Sequence[LabelRecord]:
    """Return no label: of a check outside of any run."""
    return ()


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What belongs to the run rather than to the item.

    `folder` is the suite's folder (working directory of commands); `regex_timeout_s` bounds one
    search, `plugin_timeout_s` one call of foreign code. `passed` is the grading's own: assertions
    that passed, by their identity, with their checks and results. `objects` are what a suite made
    in Python refers to by name. `complete` calls providers for the item that is graded, `judges`
    asks its judges. `workspace` is the folder that the target worked in, if there was one.
    `absent_fields` are the fields that no case's expected output has; None where the cases are not
    known, as for an assertion on its own. `workers` run Python in processes of its own. `labels_of`
    returns what people said of a content (`model.annotation.content_key`). `keeps_outputs` is
    false where no output is stored, so that people cannot be shown one. `thread` runs checks that
    take long where an event loop has others to serve.
    """

    folder: Path
    imports: ImportPolicy
    regex_timeout_s: float = 2.0
    plugin_timeout_s: float = 30.0
    objects: Mapping[str, Any] = NOTHING
    complete: Complete = no_provider
    judges: Judges = NO_JUDGES
    workspace: Path | None = None
    absent_fields: frozenset[str] | None = None
    workers: Workers = NO_WORKERS
    labels_of: Callable[[str], Sequence[LabelRecord]] = no_labels
    keeps_outputs: bool = True
    thread: GradingThread | None = None
    passed: dict[int, tuple[Assertion, Any, AssertionResult]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def lacks_field(self, path: str) -> bool:
        """Whether no case's expected output has the field."""
        return self.absent_fields is None or path in self.absent_fields


class Subject(NamedTuple):
    """The text under a check (the block's or the primary output, after its transform) and the rest.

    `metrics` are the block's where the assertion names a block, else the item's.
    """

    output: str
    metrics: Metrics
    evidence: Evidence
    case: Case
    context: CheckContext
