"""Calls to providers: recorded or real, within the run's limits, tried again, kept in a ledger.

Order of a call: recording, budget, rate limits, the attempt, settlement, the next attempt; then it
is recorded. No call hops to another thread unless it is recorded. `RunCallContext` is what the
calls of a run share in one process, `CallLedger` lists those of one work item.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import fsum
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.checks.base import GradingThread
from evalcore.checks.registry import HEAVY
from evalcore.errors import StoreError
from evalcore.execution.budget import Settlement, TokenDemand
from evalcore.execution.limits import (
    DEFAULT_POLICY,
    Draw,
    Refusal,
    RetryPolicy,
    RunLimits,
    items_of,
)
from evalcore.execution.waits import Waits
from evalcore.model.evidence import (
    COUNTS,
    TOKEN_PARTS,
    UNMEASURED,
    Evidence,
    Metrics,
    with_warnings,
)
from evalcore.model.exchange import (
    BOUNDS,
    ErrorKind,
    ProviderError,
    Reply,
    Request,
    SkippedError,
    call_notes,
    request_digest,
)
from evalcore.model.mode import Mode
from evalcore.observability.events import CallEnded, CallRetried, Observer
from evalcore.providers.registry import open_session, send

if TYPE_CHECKING:
    from evalcore.planning.expand import WorkItem
    from evalcore.providers.registry import Connections
    from evalcore.recording.recorder import Recorder
    from evalcore.recording.redaction import Redaction


@dataclass(frozen=True, slots=True)
class RunCallContext:
    """What the calls of one run in one process share. `draw` gives the jitter of retries.

    `redaction` is set where items keep the messages of their calls.
    """

    limits: RunLimits
    recorder: Recorder | None = None
    mode: str = Mode.LIVE
    retry: RetryPolicy = DEFAULT_POLICY
    draw: Draw = random.random
    observer: Observer | None = None
    redaction: Redaction | None = None
    waits: Waits = field(default_factory=Waits)


# What the ledger alone knows of a call; a target that lists its own calls does not.
_TRACED: Final = (
    "finish_reason",
    "truncated",
    "unpriced",
    "began_ms",
    "recording",
    "retries",
    "request",
    "reply",
    "left_out_bytes",
)
# Messages of an item's calls beyond this are left out of its row.
KEPT_MESSAGE_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class OpenCall:
    """A call that has begun. `began_ms` is by the latencies of the calls before it.

    `recording` names its recording, if it has one; `retries` are the attempts that failed.
    """

    began_ms: float
    recording: str | None = None
    retries: list[dict[str, Any]] = field(default_factory=list)


class CallLedger:
    """Calls in the order in which they ended, as `details.calls` of the evidence has them.

    With `redaction` each call has its messages (`request`, `reply`), without secrets, as long as
    those of the item have at most `KEPT_MESSAGE_BYTES`; of others only their size is noted.
    """

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.redaction: Redaction | None = None
        self.notes: list[str] = []
        self._sent: list[Any] = []
        self._room = KEPT_MESSAGE_BYTES
        # Time as the calls' own latencies make it: a call begins when those before it have ended.
        self._ended_ms = 0.0

    def begin(self) -> OpenCall:
        """Return a call that starts now."""
        return OpenCall(self._ended_ms)

    def add_reply(self, call: OpenCall, request: Request, reply: Reply, error: str = "") -> None:
        """Note a call that was answered; `error` says why the answer could not be used."""
        self._ended_ms = max(self._ended_ms, call.began_ms + reply.latency_ms)
        self.notes += reply.notes
        entry = {
            "provider": request.endpoint.provider,
            "model": reply.model or request.model,
            "latency_ms": reply.latency_ms,
            "ttft_ms": reply.ttft_ms,
            "cost_usd": reply.cost_usd,
            **reply.usage.counts,
            "attempts": reply.attempts,
            "recorded": reply.recorded or None,
            "error": error or None,
            **call_notes(request, reply),
            **self._trace(call, request, reply),
        }
        self.calls.append({key: value for key, value in entry.items() if value is not None})

    def add_failure(self, call: OpenCall, request: Request, error: ProviderError) -> None:
        """Note a call that was given up."""
        self.calls.append(
            {
                "provider": request.endpoint.provider,
                "model": request.model,
                "attempts": error.attempts,
                "error": f"{error.kind}: {error.message}",
                **self._trace(call, request, None),
            }
        )

    def _trace(self, call: OpenCall, request: Request, reply: Reply | None) -> dict[str, Any]:
        """Return what is kept of a call beside its measures."""
        trace: dict[str, Any] = {}
        if call.recording is not None:
            trace["recording"] = call.recording
        if self.redaction is None:
            return trace
        redaction = self.redaction.knowing(request.endpoint)
        trace["began_ms"] = call.began_ms
        if call.retries:
            trace["retries"] = redaction.value(call.retries)
        return trace | self._messages(request, reply, redaction)

    def _messages(
        self, request: Request, reply: Reply | None, redaction: Redaction
    ) -> dict[str, Any]:
        """Return what was sent and received, without secrets and what the last call had sent.

        An agent sends its whole conversation with each call: the first `continues` messages are
        those of the last call whose messages are kept.
        """
        from evalcore.recording.redaction import named_identity

        identity = redaction.identity(named_identity(request))
        messages, last = identity["messages"], self._sent
        shared = 0
        while shared < min(len(messages), len(last)) and messages[shared] == last[shared]:
            shared += 1
        names = ("parameters", "tools", "response_schema")
        fields = {name: identity[name] for name in names if identity[name]}
        kept: dict[str, Any] = {
            "request": {"continues": shared, "messages": messages[shared:], **fields}
        }
        if reply is not None:
            kept["reply"] = {
                "text": redaction.text(reply.text),
                "tool_calls": redaction.value(list(reply.tool_calls)),
                "finish_reason": reply.finish_reason,
            }
        size = _size(kept)
        if size > self._room:
            return {"left_out_bytes": size}
        self._room -= size
        self._sent = messages
        return kept

    @property
    def attempts(self) -> int:
        """How many calls were made, each attempt counted."""
        return sum(call["attempts"] for call in self.calls)

    @property
    def metrics(self) -> Metrics:
        """Sums over the calls that were answered; of calls side by side the longest counts.

        The time to the first token is the first call's. The cost is None if one call's is unknown.
        """
        answered = [call for call in self.calls if "latency_ms" in call]
        if not answered:
            return UNMEASURED
        costs = [call["cost_usd"] for call in answered if "cost_usd" in call]
        first = [call["ttft_ms"] for call in answered if "ttft_ms" in call]
        return Metrics(
            latency_ms=round(self._ended_ms, 1),
            ttft_ms=first[0] if first else None,
            cost_usd=fsum(costs) if len(costs) == len(answered) else None,
            **{name: count for name in COUNTS if (count := _total(answered, name)) is not None},
        )

    def completed(self, evidence: Evidence) -> Evidence:
        """Return evidence with what it does not say itself: measures, calls, notes of replies."""
        if not self.calls:
            return evidence
        evidence = with_warnings(evidence, self.notes)
        own, sums = evidence.metrics, self.metrics
        parts = TOKEN_PARTS if own.total_tokens is None else ()
        names = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens", *parts)
        metrics = replace(
            own, **{name: getattr(sums, name) for name in names if getattr(own, name) is None}
        )
        details = evidence.details
        if "calls" not in details:
            details = {**details, "calls": self.calls}
        elif any(name in call for call in self.calls for name in _TRACED):
            details = {**details, "calls": _traced(details["calls"], self.calls)}
        return evidence._replace(metrics=metrics, details=details)


def _traced(
    listed: Sequence[Mapping[str, Any]], noted: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the calls that a target lists, each with what the ledger noted of the same call.

    Both are in the order of the calls; the ledger may have more, those of a block's checks.
    """
    unused = list(noted)
    traced = []
    for entry in listed:
        same = next((call for call in unused if _is_same(entry, call)), None)
        if same is not None:
            unused.remove(same)
        trace = {name: same[name] for name in _TRACED if name in same} if same else {}
        traced.append({**entry, **trace})
    return traced


def _is_same(entry: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    names = ("provider", "latency_ms")
    return all(entry.get(name) == call.get(name) for name in names)


def _size(value: Any) -> int:
    """Return about how many bytes a value has as JSON."""
    try:
        return len(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))
    except TypeError:  # as half of a surrogate pair
        return len(repr(value))


def _total(calls: list[dict[str, Any]], name: str) -> int | None:
    counts = [call[name] for call in calls if name in call]
    return sum(counts) if counts else None


# Bounds one attempt where the request does not.
CALL_TIMEOUT_S = 120.0
_GUESSED_ANSWER_TOKENS = 500
_BYTES_PER_TOKEN = 4


class Calls:
    """What the calls of all items of a run share; its connections are opened with the first call.

    `thread` is where items are graded that would hold up the loop.
    """

    def __init__(self, context: RunCallContext) -> None:
        self.context = context
        self._connections: Connections | None = None
        self._store_fault: StoreError | None = None
        self.thread = GradingThread(HEAVY)

    def raise_store_fault(self) -> None:
        """Raise the fault of the store that a call has met, if one has: the run has to stop.

        Asked for once an item is done: targets and checks, other people's code among them, turn
        what a call raises into results of their own.
        """
        if self._store_fault is not None:
            raise self._store_fault

    @contextmanager
    def noting_store_faults(self) -> Iterator[None]:
        """Keep the fault of the store that ends the context, for `raise_store_fault`."""
        try:
            yield
        except StoreError as error:
            self._store_fault = self._store_fault or error
            raise

    async def close(self) -> None:
        """Close the connections."""
        if self._connections is not None:
            await self._connections.close()

    def connections(self) -> Connections:
        """Return the connections, open until `close`."""
        if self._connections is None:
            self._connections = open_session()
        return self._connections


class ItemCalls:
    """Calls of one work item (`Complete`), for its target or for its judges, and their ledger.

    The item's time limit `clock` stands still while it waits for others: for the budget, for a rate
    limit, for the store. It goes on while it backs off.
    """

    def __init__(
        self, calls: Calls, item: WorkItem, clock: asyncio.Timeout | None, refusals: list[Refusal]
    ) -> None:
        self.ledger = CallLedger()
        self.refusals = refusals
        self._calls = calls
        self._context = calls.context
        self._limits = calls.context.limits
        self._item = item
        self._observer = calls.context.observer
        self._clock = clock
        self._waiting = 0
        self._left_s = 0.0
        self._invocations: dict[str, int] = {}

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; raise `ProviderError` after the last retry, or `SkippedError`."""
        opened = self.ledger.begin()
        began_ns = 0 if self._observer is None else time.time_ns()
        try:
            reply = await self._recorded_or_called(request, opened)
        except ProviderError as error:
            self.ledger.add_failure(opened, request, error)
            self._tell_end(request, error, began_ns)
            raise
        self.ledger.add_reply(opened, request, reply)
        self._tell_end(request, reply, began_ns)
        return reply

    def _tell_end(self, request: Request, outcome: Reply | ProviderError, began_ns: int) -> None:
        if self._observer is not None:
            self._observer.tell(
                CallEnded(self._item.number, request, outcome, began_ns, time.time_ns())
            )

    def keep_messages(self) -> None:
        """Keep what is sent and received in the ledger, if the run's redaction is known."""
        self.ledger.redaction = self._context.redaction

    async def _recorded_or_called(self, request: Request, opened: OpenCall) -> Reply:
        recorder = self._context.recorder
        if recorder is None:
            return await self._called(request, opened)
        identity = request_digest(request.identity(), iteration=0, invocation=0)
        invocation = self._invocations.get(identity, 0)
        self._invocations[identity] = invocation + 1
        from evalcore.recording.content import Question, RecordingError

        item = self._item
        question = Question.of(request, iteration=item.iteration, invocation=invocation)
        asker = sha256(f"{item.case.id}\0{item.variant.id}".encode()).hexdigest()[:16]
        with suppress(RecordingError):  # a request that JSON cannot hold has none
            opened.recording = question.digest
        self._calls.raise_store_fault()
        with self.standing_still(), self._calls.noting_store_faults():
            recorded = await recorder.find(request, question, asker)
        if recorded is not None:
            return recorded if recorded.recorded else replace(recorded, recorded=True)
        if self._context.mode == Mode.REPLAY:
            raise ProviderError("recording", "no recording of this call", attempts=0)
        try:
            outcome: Reply | ProviderError = await self._called(request, opened)
        except ProviderError as error:
            if self._is_of_the_account(request, error):
                raise  # a run that goes on with another key, or with credit, asks again
            outcome = error
        # A slow store is not the target's time.
        with self.standing_still(), self._calls.noting_store_faults():
            return await recorder.save(request, question, outcome, asker)

    def _is_of_the_account(self, request: Request, error: ProviderError) -> bool:
        """Whether a failure says nothing of the question: a model's provider was never to be had.

        A key that was good before is another matter: a replay shows that it was refused.
        """
        if not request.model or not any(error is refusal.error for refusal in self.refusals):
            return False
        gate = self._limits.gates.find(request)
        return error.kind == ErrorKind.CREDIT or not gate.has_answered

    async def _called(self, request: Request, opened: OpenCall) -> Reply:
        """Return the answer of the first attempt that has one; `RetryPolicy` says the pauses."""
        original = request
        if request.attempt_timeout_s is None:
            request = replace(request, attempt_timeout_s=CALL_TIMEOUT_S)
        demand, gate = self._limits.demand(request), self._limits.gates.find(request)
        endpoint, draw = request.endpoint, self._context.draw
        attempt = waits_asked_for = 0
        waited_s, began = 0.0, time.monotonic()
        while True:
            attempt += 1
            try:
                reply = await self._paid(request, demand, attempt, opened)
                gate.note_answer()
                return reply
            except ProviderError as failed:
                error = failed
                error.attempts = attempt
                gate.note_failure(error, self._context.retry.total_s)
                policy, silence_s = gate.bounded(self._context.retry), gate.silence_s
                if error.retry_after_s:
                    waits_asked_for += 1
                    # Those that are answered meanwhile show that the wait is worth it.
                    waited_s = min(silence_s, time.monotonic() - began)
                delay = policy.delay_s(
                    error,
                    attempt=attempt - waits_asked_for,
                    waited_s=waited_s,
                    silence_s=silence_s,
                    draw=draw,
                )
                if delay is None:
                    gate.note_end(error)
                    if gate.refuses_all(error, endpoint.protocol):
                        self.refusals.append(Refusal(gate, error))
                    if error.retryable and error.retry_after_s:
                        raise _asked_too_long(error, policy.total_s) from error
                    raise
            opened.retries.append(
                {
                    "attempt": attempt,
                    "kind": str(error.kind),
                    "message": error.message,
                    "delay_s": delay,
                }
            )
            if self._observer is not None:
                self._observer.tell(
                    CallRetried(self._item.number, original, error, attempt, delay, time.time_ns())
                )
            if error.retry_after_s:  # waited at the provider's gate
                continue
            waited_s += delay
            with self._context.waits.entered(f"{request.endpoint.provider} retry ({error.kind})"):
                await asyncio.sleep(delay)

    async def _paid(
        self, request: Request, demand: TokenDemand | None, attempt: int, opened: OpenCall
    ) -> Reply:
        """Make one attempt within the budget."""
        budget = self._limits.budget
        if budget is None or demand is None:
            reply = await self._within_rates(request, self._sent)
            return self._priced(request, reply, attempt)
        concurrency = self._limits.window.limit
        grant = budget.try_reserve(demand, concurrency)
        if grant is None:
            with self._context.waits.entered("budget"), self.standing_still():
                grant = await budget.reserve(demand, concurrency)
        with Settlement(budget, grant) as payment:
            request = payment.bounded(request)
            priced = partial(self._priced, request, attempt=attempt)
            reply = await self._within_rates(
                request,
                lambda sent: payment.answered(self._sent(sent), priced, self._item_is_timed_out),
            )
        if payment.is_cut(reply):
            cut = f"the run's budget left {grant.output_tokens} tokens, too few for the answer"
            self.ledger.add_reply(opened, request, reply, f"budget: {cut}")
            raise SkippedError("budget", cut)
        return reply

    def _item_is_timed_out(self) -> bool:
        """Whether the item's time limit has passed."""
        return self._clock is not None and self._clock.expired()

    def _priced(self, request: Request, reply: Reply, attempt: int) -> Reply:
        cost = reply.cost_usd
        if cost is None:
            cost = self._limits.cost_usd(request, reply.usage)
        return replace(reply, cost_usd=cost, attempts=attempt)

    async def _within_rates(
        self, request: Request, send_once: Callable[[Request], Awaitable[Reply]]
    ) -> Reply:
        """Return the reply of an attempt, made as soon as the provider and its limits allow it."""
        rates, shared = self._limits.rates.find(request.endpoint), self._limits.shared
        provider, waits = request.endpoint.provider, self._context.waits
        tokens = 0 if rates is None and shared is None else _guessed_tokens(request)
        async with AsyncExitStack() as entered:
            if rates is not None and rates.gate is not None:
                with waits.entered(f"{provider} max_concurrency"), self.standing_still():
                    await entered.enter_async_context(rates.gate)
            with waits.entered(f"{provider} rate limit"), self.standing_still():
                if shared is not None:
                    await shared.take(provider, tokens)
                if rates is not None:
                    await rates.passed(tokens)
            with waits.entered(f"{provider} Retry-After"), self.standing_still():
                gate = self._limits.gates.find(request)
                await entered.enter_async_context(gate.entered())
            reply = await send_once(request)
        if rates is not None:
            rates.correct(tokens, reply)
        return reply

    @asynccontextmanager
    async def turn_of(self, target: str) -> AsyncIterator[None]:
        """Be one of the items that a target answers at the same time: as many as its `workers`."""
        limit = self._limits.rates.by_provider.get(items_of(target))
        if limit is None or limit.gate is None:
            yield
            return
        with self.standing_still():
            await limit.gate.acquire()
        try:
            yield
        finally:
            limit.gate.release()

    async def _sent(self, request: Request) -> Reply:
        """Make one attempt; the window learns how it went.

        What evalcore added to the request, and the provider refuses by name, is left out then.
        """
        window, refusals = self._limits.window, self._limits.refusals
        request = refusals.applied(request)
        while True:
            began = time.monotonic()
            try:
                reply = await send(self._calls.connections(), request)
            except ProviderError as error:
                if error.kind == ErrorKind.RATE:
                    window.note(began, time.monotonic(), refused=True)
                without = refusals.without(request, error)
                if without is None:
                    raise
                request = without
                continue
            window.note(began, time.monotonic(), refused=False)
            refusals.learn(request)
            return reply

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop the item's clock as long as it waits for what is not its own."""
        clock = self._clock
        if clock is None or (clock.when() is None and not self._waiting):
            yield
            return
        now = asyncio.get_running_loop().time
        self._waiting += 1
        if self._waiting == 1:
            self._left_s = (clock.when() or now()) - now()
            clock.reschedule(None)
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and not clock.expired():
                # An item of a batch may have ended before the others.
                with suppress(RuntimeError):
                    clock.reschedule(now() + self._left_s)


def _asked_too_long(error: ProviderError, longest_s: float) -> ProviderError:
    reason = f"the provider asks to wait for {error.retry_after_s:g} s"
    message = f"{error.message}; {reason}, evalcore waits for {longest_s:g} s at most"
    return ProviderError(error.kind, message, error.status, error.retry_after_s, error.attempts)


def _guessed_tokens(request: Request) -> int:
    """Return about how many tokens a call uses, before it is made."""
    text = sum(len(str(message.get("content") or "")) for message in request.messages)
    bound = next((request.parameters[name] for name in BOUNDS if name in request.parameters), None)
    answer_tokens = bound if isinstance(bound, int) else _GUESSED_ANSWER_TOKENS
    return text // _BYTES_PER_TOKEN + min(answer_tokens, _GUESSED_ANSWER_TOKENS)
