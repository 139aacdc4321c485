"""What bounds the calls of one run in one process: providers, retries, prices, limits."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.execution.budget import RunBudget, TokenDemand, TokenPrice, demand_of
from evalcore.execution.rates import (
    WHOLE,
    AdaptiveConcurrency,
    Clock,
    ConcurrencyShare,
    Rates,
    SharedRates,
)
from evalcore.model.evidence import TOKEN_PRICES
from evalcore.model.exchange import ErrorKind, ProviderError, Request, Usage
from evalcore.model.suite import ProviderLimits, SuiteDefinition
from evalcore.providers.failures import Refusals
from evalcore.settings import Settings

if TYPE_CHECKING:
    from evalcore.execution.shared import SharedLimits

# So often the first of those that wait looks whether an answer has let it through.
_LOOK_S = 0.01
# So many items in a row that a provider refused, without an answer in between, end the run.
REFUSED_ITEMS = 3
_FORBIDDEN = 403


# Draws a number in [0, 1).
Draw = Callable[[], float]


class RetryPolicy(NamedTuple):
    """How often a failed call is made again, and after how long.

    Times in seconds. `attempts` counts the first call; `total_s` bounds all waiting of a call.

    With ten attempts a provider that fails three times in ten loses one call in 170 000; a dead one
    is given up after about fifteen seconds, one that has never answered after three.
    """

    attempts: int = 10
    first_s: float = 0.25
    # What fails now and then, while others are answered, is not worth a longer wait.
    blip_s: float = 1.0
    longest_s: float = 5.0
    # A provider that refuses for the rest of a minute is worth waiting for.
    longest_rate_s: float = 15.0
    total_s: float = 300.0
    # Most often an address is wrong, or a server was not started.
    unheard_s: float = 3.0

    def delay_s(
        self,
        error: ProviderError,
        *,
        attempt: int,
        waited_s: float,
        silence_s: float,
        draw: Draw,
    ) -> float | None:
        """Return how long to wait after attempt number `attempt` (from 1) failed; None: give up.

        Exponential with full jitter, but hardly longer than the provider has been silent
        (`silence_s`). What it asks for (`Retry-After`) is waited as it says and uses up no
        attempt. A call whose pauses would exceed `total_s` is given up.
        """
        if not error.retryable:
            return None
        if asked_s := error.retry_after_s:
            return None if waited_s + asked_s > self.total_s else asked_s
        if attempt >= self.attempts:
            return None
        longest = self.longest_rate_s if error.kind == ErrorKind.RATE else self.longest_s
        bound = min(longest, self.first_s * 2.0 ** (attempt - 1), max(self.blip_s, silence_s))
        delay = draw() * bound
        return None if waited_s + delay > self.total_s else delay


DEFAULT_POLICY = RetryPolicy()


def provider_of(request: Request) -> tuple[str, str | None]:
    """Return what names a provider: its host and the key it is asked with.

    Two targets with one host and one key share the provider's limits and its credit.
    """
    endpoint = request.endpoint
    # Scheme, host and port: what lies behind them may differ from call to call.
    host = "/".join(endpoint.base_url.split("/", 3)[:3])
    if not host:
        host = f"{endpoint.protocol}:{request.model.partition(':')[0]}"
    return host, endpoint.api_key


class ProviderGate:
    """Lets no call to one provider through as long as it asked to wait; knows how calls went.

    After a wait one call begins, and each answer lets another one more begin.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        # How many more calls may begin.
        self._room = math.inf
        self._turn = asyncio.Lock()
        self.has_answered = False
        self.refused_items = 0
        # Whether it exists: it has answered or refused. When it answered last.
        self._is_heard = False
        self._answered_at = float("-inf")
        # Calls that were given up, one after another.
        self._given_up = 0

    @property
    def held_s(self) -> float:
        """How long (seconds) the provider wants no call."""
        return max(0.0, self._until - self._clock())

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Enter as soon as a call may be made, in order."""
        async with self._turn:
            while self.held_s > 0 or self._room < 1:
                await asyncio.sleep(max(_LOOK_S, self.held_s))
            self._room -= 1
        try:
            yield
        finally:
            self._room += 1

    def note_answer(self) -> None:
        """Note that the provider answered a call: it refuses single ones at most."""
        self.has_answered = self._is_heard = True
        self.refused_items = self._given_up = 0
        self._room += 1
        self._answered_at = self._clock()

    def note_failure(self, error: ProviderError, longest_s: float) -> None:
        """Note that an attempt failed: a provider that refuses one exists.

        What it asks to wait beyond `longest_s` holds no other call.
        """
        if error.retryable and error.retry_after_s and error.retry_after_s <= longest_s:
            self._until = max(self._until, self._clock() + error.retry_after_s)
            self._room = 1
        no_answer = error.kind == ErrorKind.CONNECTION
        # There was an answer, but none that makes sense.
        no_answer |= error.kind == ErrorKind.SERVER and error.status in {None, 200}
        self._is_heard |= not no_answer

    def note_end(self, error: ProviderError) -> None:
        """Note that a call was given up after its last retry, or refused as such."""
        if error.retryable:
            self._given_up += 1
        else:
            self._given_up, self._is_heard = 0, True
            self._answered_at = self._clock()

    @property
    def silence_s(self) -> float:
        """How long (seconds) the provider has not answered; infinite if it never did."""
        return self._clock() - self._answered_at

    def bounded(self, policy: RetryPolicy) -> RetryPolicy:
        """Return how often a call that failed is made again.

        Hardly, where every call has been given up; not for long, where no provider has answered.
        """
        if not self._is_heard or self._given_up >= _HOPELESS:
            policy = policy._replace(total_s=min(policy.total_s, policy.unheard_s))
        if self._given_up >= _HOPELESS:
            policy = policy._replace(attempts=min(policy.attempts, _LAST_ATTEMPTS))
        return policy

    def refuses_all(self, error: ProviderError, protocol: str) -> bool:
        """Whether the provider may refuse every call for the reason of this one: key or credit.

        One that has answered may forbid a single question, and to an `http` target a 401 may be
        the answer that a case asks for. A server that nobody has heard of is not there.
        """
        if error.kind == ErrorKind.CONNECTION:
            return not self._is_heard
        if error.kind not in (ErrorKind.AUTHENTICATION, ErrorKind.CREDIT):
            return False
        return not self.has_answered or (protocol != "http" and error.status != _FORBIDDEN)


class Refusal(NamedTuple):
    """A call that a provider refused as it may refuse every other."""

    gate: ProviderGate
    error: ProviderError


class ProviderGates:
    """The gates of all providers that a process asks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gates: dict[tuple[str, str | None], ProviderGate] = {}
        # What ends the run: the words of a provider that refuses every call.
        self.ended_by: ProviderError | None = None
        # Whether an item was left out for it.
        self.left_out = False

    def find(self, request: Request) -> ProviderGate:
        """Return the gate of the provider that is asked."""
        name = provider_of(request)
        gate = self._gates.get(name)
        return gate or self._gates.setdefault(name, ProviderGate(self._clock))

    def note_refused_item(self, gate: ProviderGate, error: ProviderError) -> None:
        """Note that an item ended with a refusal; after three in a row the run ends."""
        gate.refused_items += 1
        if gate.refused_items >= REFUSED_ITEMS and self.ended_by is None:
            self.ended_by = error

    @property
    def held_s(self) -> float:
        """How long (seconds) a provider wants no call: no new item begins before."""
        return max((gate.held_s for gate in tuple(self._gates.values())), default=0.0)


UNPRICED = "price"
# After so many calls that were given up one after another the next ones are tried less often.
_HOPELESS = 5
_LAST_ATTEMPTS = 2
_MILLION = 1_000_000
# Kinds of tokens that are dearer than others, and the word that a request has which uses them.
_DEARER_KINDS = {
    "cache_write_tokens": "cache_control",
    "cache_write_1h_tokens": "'1h'",
    "input_audio_tokens": "input_audio",
    "output_audio_tokens": "modalities",
}

GROUP = "evalcore.rate_limits"


class RunLimits:
    """Budget, rate limits and the number of calls at once.

    `is_shared` says that a `sync` brings the budget in step with the run's other processes; of what
    providers allow, this process has a `share`. Rates that an orchestrator keeps are `shared` with
    other runs. The number of calls at once is this process's own; `warn` is told if it is less than
    what is asked for.
    """

    def __init__(
        self,
        definition: SuiteDefinition,
        settings: Settings,
        *,
        concurrency: int | None = None,
        shared: SharedRates | None = None,
        share: ConcurrencyShare = WHOLE,
        is_shared: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        limits = definition.limits
        self.window = AdaptiveConcurrency(concurrency or limits.concurrency)
        allow_open_files()
        self.budget = (
            RunBudget(
                max_cost_usd=limits.max_cost_usd, max_tokens=limits.max_tokens, shared=is_shared
            )
            if limits.budgeted
            else None
        )
        sources = (settings.providers, limits.providers, _of_targets(definition))
        self.rates = Rates(sources, share, clock)
        self.gates = ProviderGates(clock)
        self.shared = shared
        self.sync: SharedLimits | None = None
        self._priced = limits.max_cost_usd is not None
        self._own_prices = settings.prices
        self._prices: dict[tuple[str, str, tuple[str, ...]], TokenPrice | None] = {}
        self.refusals = Refusals()
        self._clock = clock
        self._duration_s = limits.max_duration_s
        self._began = clock()

    @property
    def ended(self) -> bool:
        """Whether the run's time is over: no item begins any more."""
        if self._duration_s is None:
            return False
        sync = self.sync
        elapsed_s = self._clock() - self._began if sync is None else sync.elapsed_s
        return elapsed_s >= self._duration_s

    def demand(self, request: Request) -> TokenDemand | None:
        """Return what a call needs of the budget; None if no budget is asked for it.

        Raises `ProviderError` of kind `price` for a model without a price under a cost cap. What
        is asked over plain HTTP is no model, and its cost is unknown.
        """
        if self.budget is None or not request.model:
            return None
        price = self._price(request) if self._priced else None
        if price is None:
            if self._priced:
                raise ProviderError(UNPRICED, _no_price(request.model), attempts=0)
            price = TokenPrice()
        return demand_of(request, price)

    def cost_usd(self, request: Request, usage: Usage) -> float | None:
        """Return what an answer costs; None if that is unknown."""
        if not request.model:
            return None
        from evalcore.providers.prices import cost_of

        return cost_of(request.model, request.endpoint.provider, usage, self._own_prices)

    def _price(self, request: Request) -> TokenPrice | None:
        model, provider = request.model, request.endpoint.provider
        sent = str((request.messages, request.tools, request.parameters))
        kinds = tuple(kind for kind, word in _DEARER_KINDS.items() if word in sent)
        key = (model, provider, kinds)
        if key not in self._prices:
            self._prices[key] = highest_price(model, provider, self._own_prices, kinds)
        return self._prices[key]


def highest_price(
    model: str,
    provider: str,
    own: Mapping[str, Mapping[str, float]],
    kinds: Sequence[str] = (),
) -> TokenPrice | None:
    """Return the most that a million tokens of a model cost; None if it has no price.

    The output may be reasoning; input and output may be of these further kinds.
    """
    from evalcore.providers.prices import cost_of

    # Some models are dearer above some length; a million tokens are above all of them.
    plain = cost_of(model, provider, Usage(_MILLION, 0), own)
    if plain is None:
        return None

    def highest(usage: Usage, names: Sequence[str]) -> float:
        if "cache_write_1h_tokens" in names:  # a part of what is written
            usage = replace(usage, cache_write_tokens=_MILLION)
        parts: list[dict[str, Any]] = [{}, *({name: _MILLION} for name in names)]
        usages = [replace(usage, **part) for part in parts]
        return max(cost_of(model, provider, each, own) or 0.0 for each in usages)

    inputs = [name for name in kinds if TOKEN_PRICES[name][1] != "output"]
    outputs = ["reasoning_tokens", *(name for name in kinds if name not in inputs)]
    output = highest(Usage(_MILLION, _MILLION), outputs) - plain
    return TokenPrice(highest(Usage(_MILLION, 0), inputs), output)


def find_shared_rates(name: str | None) -> SharedRates | None:
    """Return what an installed package offers under `name`; None for None, else `UsageError`."""
    return None if name is None else find_offered(GROUP, name, "rate_limits")


def find_offered(group: str, name: str, what: str) -> Any:
    """Return what an installed package offers under `name` in a group; raise `UsageError`."""
    # Reading every installed package's entry points takes longer than a small run.
    from importlib.metadata import entry_points

    offered = entry_points(group=group)
    for entry in offered:
        if entry.name == name:
            return entry.load()()
    names = ", ".join(sorted(entry.name for entry in offered)) or "none is installed"
    raise UsageError(f"{what}: nothing is called '{name}' ({names})")


def most_processes(definition: SuiteDefinition, settings: Settings) -> int | None:
    """Return how many processes may share a run so that each may make a call; None: any number."""
    sources = (settings.providers, definition.limits.providers, _of_targets(definition))
    bounds = [each.max_concurrency for limits in sources for each in limits.values()]
    return min((bound for bound in bounds if bound), default=None)


def items_of(target: str) -> str:
    """Return the name of the limit that a target's `workers` are, beside those of its calls."""
    return f"items of {target}"


def _of_targets(definition: SuiteDefinition) -> dict[str, ProviderLimits]:
    """Return the limits that stand in the options of targets: of their calls and of their items."""
    names = [field.name for field in fields(ProviderLimits)]
    limits = {}
    for name, options in _targets(definition):
        bounds = {bound: options[bound] for bound in names if options.get(bound)}
        if bounds:
            limits[name] = ProviderLimits(**bounds)
        if options.get("workers"):
            limits[items_of(name)] = ProviderLimits(max_concurrency=options["workers"])
    return limits


def _targets(definition: SuiteDefinition) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and options of each target, and of those that stand in for it."""
    for target in definition.targets.values():
        yield target.name, target.options
        for other in target.options.get("fallback_targets") or ():
            yield other["name"], other["options"]


def _no_price(model: str) -> str:
    return (
        f"model '{model}' has no known price, but what the run may cost is bounded (max_cost_usd, "
        "in test files also total_budget_usd and trials.cost_limit_usd); add "
        f'[prices."{model}"] with input and output (US dollars per million tokens) to '
        "evalcore.toml"
    )


# Shells give a process 1024 open files, of many more that it may take.
_OPEN_FILES: Final = 65_536


def allow_open_files() -> None:
    """Let this process, and programs that it starts, open as many files as they may."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft not in (resource.RLIM_INFINITY, most) and soft < most:
        with suppress(OSError, ValueError):  # the system takes less than it names
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
