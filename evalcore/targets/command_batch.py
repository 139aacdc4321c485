"""Several cases answered by one run of a program: JSON lines in, JSON lines out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import TargetError
from evalcore.jsonvalues import parse, storable
from evalcore.model.evidence import Evidence, Metrics, with_warnings
from evalcore.targets.case_messages import json_text
from evalcore.targets.work import Work
from evalcore.trust.machine_faults import Noting, faults_noted_by, item_noting

# Works that wait at the same time arrive within this time.
_GATHER_S: Final = 0.1
_ANSWERS: Final = ("output", "text", "answer")


class ProgramAnswer(NamedTuple):
    """What a program wrote, as text, and how long it took."""

    text: str
    latency_ms: float


# Runs the program for the first of some works with these lines as its prompt.
Ask = Callable[[Work, str], Awaitable[ProgramAnswer]]
# The answer to a case, by its id and its share of the time; raises `TargetError`.
EvidenceOf = Callable[[str, float], Evidence]


class _Batch:
    """Works that wait to be asked together, by the ids of their cases."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}
        self.answers: dict[str, asyncio.Future[Evidence]] = {}
        self.notings: dict[str, Noting] = {}
        self.closed = asyncio.Event()

    @contextmanager
    def noting_faults(self) -> Iterator[None]:
        """Note a fault for each work that waits; the time of all stands still meanwhile."""
        with ExitStack() as stack:
            for name, answer in self.answers.items():
                if not answer.done():
                    stack.enter_context(self.notings[name]())
            yield


class Batches:
    """Gathers works that wait at the same time, at most `size`; for several event loops.

    Works in different workspaces, and several of one case, are never in the same batch. `read`
    returns what gives the answers that a text holds.
    """

    def __init__(
        self, size: int, ask: Ask, read: Callable[[str], EvidenceOf] | None = None
    ) -> None:
        self._size = size
        self._ask = ask
        self._read = read or _answers_in
        self._open: dict[tuple[asyncio.AbstractEventLoop, Path | None], _Batch] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def answer(self, work: Work) -> Evidence:
        """Return the answer to one work; raise `TargetError`."""
        key = (asyncio.get_running_loop(), work.workspace)
        batch = self._open.get(key)
        if batch is None or work.case.id in batch.works:
            if batch is not None:
                batch.closed.set()
            batch = self._open[key] = _Batch()
            task = asyncio.create_task(self._run(key, batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        batch.works[work.case.id] = work
        batch.notings[work.case.id] = item_noting()
        answer: asyncio.Future[Evidence] = asyncio.get_running_loop().create_future()
        batch.answers[work.case.id] = answer
        if len(batch.works) >= self._size:
            self._close(key, batch)
        try:
            return await answer
        except asyncio.CancelledError:
            answer.cancel()
            raise

    def _close(self, key: tuple[asyncio.AbstractEventLoop, Path | None], batch: _Batch) -> None:
        batch.closed.set()
        if self._open.get(key) is batch:
            del self._open[key]

    async def _run(self, key: tuple[asyncio.AbstractEventLoop, Path | None], batch: _Batch) -> None:
        """Wait until the batch is full or no work arrives, run it, and hand out the answers."""
        try:
            async with asyncio.timeout(_GATHER_S):
                await batch.closed.wait()
        except TimeoutError:
            self._close(key, batch)
        works = [work for name, work in batch.works.items() if not batch.answers[name].cancelled()]
        if not works:
            return
        with faults_noted_by(batch.noting_faults):
            run = asyncio.ensure_future(self._ask(works[0], _lines(works)))
        waiting = set(batch.answers.values())
        # The run ends once no answer is awaited.
        while not run.done():
            left = {answer for answer in waiting if not answer.done()}
            if not left:
                run.cancel()
            awaited: set[asyncio.Future[Any]] = {run, *left}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        self._hand_out(batch, run)

    def _hand_out(self, batch: _Batch, run: asyncio.Future[ProgramAnswer]) -> None:
        open_ = {name: answer for name, answer in batch.answers.items() if not answer.done()}
        if run.cancelled():
            error: BaseException | None = TargetError("command", "the batch was stopped")
        else:
            error = run.exception()
        if error is not None:
            for answer in open_.values():
                answer.set_exception(error)
            return
        result = run.result()
        evidence_of = self._read(result.text)
        share_ms = round(result.latency_ms / len(batch.works), 1)
        for name, answer in open_.items():
            try:
                answer.set_result(evidence_of(name, share_ms))
            except TargetError as problem:
                answer.set_exception(problem)
            # An answer that is never set would hold its item for ever.
            except (TypeError, ValueError, RecursionError) as problem:
                message = f"the batch's answer to {name!r} cannot be kept: {problem}"
                answer.set_exception(TargetError("command", message))


def _lines(works: list[Work]) -> str:
    """Return a line for each work, in their order."""
    return "".join(
        json_text(
            {
                "id": work.case.id,
                "prompt": work.prompt,
                "messages": [dict(message) for message in work.messages],
                "metadata": dict(work.case.metadata),
            }
        )
        + "\n"
        for work in works
    )


def _answers_in(text: str) -> EvidenceOf:
    records = _read(text)
    return lambda name, share_ms: _evidence(name, records, share_ms)


def _read(text: str) -> dict[str, Mapping[str, Any]] | TargetError:
    """Return the answers by their ids, or what is wrong with them as a whole."""
    records: dict[str, Mapping[str, Any]] = {}
    # Only a line feed ends a line: a text in JSON may hold other separators, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        value: Any = None
        with suppress(ValueError):
            value = parse(line)
        if not isinstance(value, dict) or not isinstance(value.get("id"), str):
            message = f'line {number} of the batch\'s answer is no JSON object with an "id"'
            return TargetError("command", message)
        records[value["id"]] = value
    return records


def _evidence(
    name: str, records: Mapping[str, Mapping[str, Any]] | TargetError, share_ms: float
) -> Evidence:
    if isinstance(records, TargetError):
        raise records
    record, notes = storable(records.get(name))
    if record is None:
        raise TargetError("command", f"the batch's answer has no line with the id {name!r}")
    if record.get("error"):
        raise TargetError("command", str(record["error"]))
    key = next((key for key in _ANSWERS if key in record), None)
    if key is None:
        raise TargetError("command", f'the batch\'s answer to {name!r} has no "output"')
    value = record[key]
    tokens = record.get("token_usage")
    tokens = tokens if isinstance(tokens, dict) else {}
    latency_ms = record.get("latency_ms", record.get("duration_ms"))
    metrics = Metrics(
        latency_ms=share_ms if latency_ms is None else latency_ms,
        cost_usd=record.get("cost_usd"),
        input_tokens=record.get("input_tokens", tokens.get("input")),
        output_tokens=record.get("output_tokens", tokens.get("output")),
        cached_tokens=record.get("cached_tokens", tokens.get("cached")),
        reasoning_tokens=record.get("reasoning_tokens", tokens.get("reasoning")),
    )
    text = value if isinstance(value, str) else json_text(value)
    return with_warnings(Evidence(text, metrics=metrics), notes)
