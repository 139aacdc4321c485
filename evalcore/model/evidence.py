"""What one execution left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from evalcore import jsonvalues
from evalcore.jsonvalues import PathSyntaxError, Resolved, Wildcard, parse_storable

TOKEN_PRICES: Final[Mapping[str, tuple[str, str]]] = {
    "cached_tokens": ("cache_read", "input"),
    "cache_write_tokens": ("cache_write", "input"),
    "cache_write_1h_tokens": ("cache_write_1h", "cache_write"),
    "input_audio_tokens": ("input_audio", "input"),
    "reasoning_tokens": ("reasoning", "output"),
    "output_audio_tokens": ("output_audio", "output"),
}
"""Tokens that are priced apart: their price, and the price that holds where it is not set."""

TOKEN_PARTS: Final = (*TOKEN_PRICES, "batch_tokens")
"""Fields of `Metrics` that are parts of the input tokens, of the output tokens or of both."""


@dataclass(frozen=True)
class TokenCounts:
    """Tokens by kind; None where nothing was counted.

    The input tokens contain those that were read from a cache (`cached_tokens`) or written to one
    (of which `cache_write_1h_tokens` for an hour) and those of audio; the output tokens contain
    those of reasoning and of audio.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    input_audio_tokens: int | None = None
    reasoning_tokens: int | None = None
    output_audio_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output tokens together; None when neither was counted."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


@dataclass(frozen=True)
class _TimeAndCost:
    latency_ms: float | None = None
    ttft_ms: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True)
class Metrics(TokenCounts, _TimeAndCost):
    """Measured quantities of one execution or one block; None where nothing was measured.

    Its fields are time and cost, then the tokens. `batch_tokens` are of calls at the price of
    batches.
    """

    batch_tokens: int | None = None

    @property
    def token_parts(self) -> dict[str, int]:
        """The `TOKEN_PARTS` that were counted."""
        counts = ((name, getattr(self, name)) for name in TOKEN_PARTS)
        return {name: count for name, count in counts if count is not None}

    @property
    def usage_parts(self) -> dict[str, int]:
        """The parts that `token_usage` has beside `input` and `output`, where they were counted."""
        parts = {"cached": self.cached_tokens, "reasoning": self.reasoning_tokens}
        return {name: count for name, count in parts.items() if count is not None}


UNMEASURED = Metrics()


def sum_tokens(
    measured: Iterable[Metrics], names: Iterable[str] = ("input_tokens", "output_tokens")
) -> dict[str, int]:
    """Return the sums of these fields and of the `TOKEN_PARTS`, of those that were counted."""
    listed = list(measured)
    counts = {name: [getattr(each, name) for each in listed] for name in (*names, *TOKEN_PARTS)}
    counted = {name: [n for n in each if n is not None] for name, each in counts.items()}
    return {name: sum(each) for name, each in counted.items() if each}


class _Nothing(Mapping[str, Any]):
    """A mapping that is empty and stays so; hashable, as a dataclass wants its defaults to be."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NOTHING: Mapping[str, Any] = _Nothing()


class Evidence(NamedTuple):
    """Outputs as text (mappings and lists are JSON text), the state behind them, and measures.

    `output` is the primary output. `outputs` holds the output of each block that ran, by block id
    (`block.exit` for an exit); it is empty where the target has no blocks.
    """

    output: str | None
    outputs: Mapping[str, str] = NOTHING
    metrics: Metrics = UNMEASURED
    block_metrics: Mapping[str, Metrics] = NOTHING
    details: Mapping[str, Any] = NOTHING


def with_warnings(evidence: Evidence, warnings: Iterable[str]) -> Evidence:
    """Return evidence whose details have these warnings, too, each once."""
    written = evidence.details.get("warnings") or ()
    more = [warning for warning in warnings if warning not in written]
    if not more:
        return evidence
    return evidence._replace(details={**evidence.details, "warnings": [*written, *more]})


ROOTS: Final = ("outputs", "output", "state", "metrics", "errors")
PRIMARY: Final = "primary_output"
# The outputs that are no text, where the state does not say them.
VALUES: Final = "values"
PRIMARY_PATH: Final = f"outputs.{PRIMARY}"
_LISTED: Final = 8


class MissingPath(NamedTuple):
    """Nothing stands at a path. `prefix` is its deepest part that exists, "" if none does."""

    path: str
    prefix: str
    contents: str

    def __str__(self) -> str:
        if not self.prefix:
            return f"nothing at {self.path!r}: a path begins with {', '.join(ROOTS)}"
        return f"nothing at {self.path!r}: {self.prefix!r} exists and {self.contents}"


def parse_path(text: str) -> tuple[str, ...]:
    """Return the parts of a path: names and indices (`0` or `[0]`); raise `PathSyntaxError`."""
    try:
        parts = jsonvalues.parse_path(text)
    except PathSyntaxError:
        parts = ()
    if not parts or text.startswith("["):
        raise PathSyntaxError(f"{text!r} is no path; write one like outputs.main.items[0].name")
    return tuple(part.value if isinstance(part, Wildcard) else str(part) for part in parts)


def find_value(evidence: Evidence, path: str) -> Resolved | MissingPath:
    """Return what stands at the path; raise `PathSyntaxError` for a text that is none."""
    parts = parse_path(path)
    if parts[0] == "output":
        if len(evidence.outputs) > 1:
            return MissingPath(path, "outputs", _described(output_values(evidence)))
        parts = ("outputs", PRIMARY, *parts[1:])
    if parts[0] not in ROOTS:
        return MissingPath(path, "", "")
    node: Any = _root(evidence, parts[0])
    position, prefix = 1, parts[0]
    while position < len(parts):
        step = _step(node, parts, position)
        if step is None and position == 1 and parts[0] == "outputs":
            step = _in_primary(evidence, parts)
        if step is None:
            return MissingPath(path, prefix, _described(node))
        node, steps = step
        prefix = f"{prefix}.{'.'.join(parts[position : position + steps])}"
        position += steps
    return Resolved(node)


def output_values(evidence: Evidence) -> dict[str, Any]:
    """Return the output of each block, the primary one as `primary_output`.

    Outputs that are no text stand in the details' `values` (`with_values`) or, without those, in
    the state where it is known to be the same.
    """
    values = evidence.details.get(VALUES)
    if isinstance(values, Mapping):
        outputs: dict[str, Any] = dict(evidence.outputs)
        if evidence.output is not None:
            outputs[PRIMARY] = evidence.output
        return {name: _raw(text, values, name) for name, text in outputs.items()}
    state = evidence.details.get("state")
    by_block = state if isinstance(state, Mapping) else {}
    outputs = {block: _raw(text, by_block, block) for block, text in evidence.outputs.items()}
    if evidence.output is not None:
        outputs[PRIMARY] = _primary(evidence, outputs, state)
    return outputs


def with_values(evidence: Evidence, values: Mapping[str, Any]) -> Evidence:
    """Return the evidence whose `output_values` are these JSON values.

    `values` holds outputs by block id, the primary one as `primary_output`; what it does not name
    is text. They are kept in the details where the state does not say them.
    """
    details = {key: value for key, value in evidence.details.items() if key != VALUES}
    bare = evidence._replace(details=details or NOTHING)
    texts: dict[str, Any] = dict(evidence.outputs)
    if evidence.output is not None:
        texts[PRIMARY] = evidence.output
    typed = {name: value for name, value in values.items() if not isinstance(value, str)}
    # Numbers and booleans of the same type as well.
    if _canonical(output_values(bare)) == _canonical(texts | typed):
        return bare
    return bare._replace(details={**details, VALUES: typed})


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def metric_values(metrics: Metrics) -> dict[str, Any]:
    """Return what was measured, under the names that paths, checks and scorers use."""
    tokens = {
        "input": metrics.input_tokens,
        "output": metrics.output_tokens,
        "total": metrics.total_tokens,
    }
    measured = {
        "latency_ms": metrics.latency_ms,
        "ttft_ms": metrics.ttft_ms,
        "cost_usd": metrics.cost_usd,
        "total_cost_usd": metrics.cost_usd,
        "input_tokens": metrics.input_tokens,
        "output_tokens": metrics.output_tokens,
        "total_tokens": metrics.total_tokens,
        **metrics.token_parts,
        "tokens": {name: value for name, value in tokens.items() if value is not None} or None,
    }
    return {name: value for name, value in measured.items() if value is not None}


def error_texts(evidence: Evidence) -> list[str]:
    """Return the errors that the execution survived: of model calls and of blocks."""
    errors = [str(error) for error in evidence.details.get("errors") or ()]
    for call in evidence.details.get("calls") or ():
        error = call.get("error") if isinstance(call, Mapping) else None
        if error and str(error) not in errors:
            errors.append(str(error))
    return errors


def container_in(text: str) -> Any:
    """Return the JSON object or array that a text is, None if it is neither."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        value = parse_storable(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _root(evidence: Evidence, name: str) -> Any:
    if name == "outputs":
        return output_values(evidence)
    if name == "state":
        return evidence.details.get("state", {})
    return metric_values(evidence.metrics) if name == "metrics" else error_texts(evidence)


def _raw(text: str, values: Mapping[str, Any], name: str) -> Any:
    """Return the value of that name if the text stands for it, else the text itself."""
    value = values.get(name, text)
    if isinstance(value, str):
        return text
    try:
        return value if orjson.loads(text) == value else text
    except orjson.JSONDecodeError:
        return text


def _primary(evidence: Evidence, outputs: Mapping[str, Any], state: Any) -> Any:
    text = evidence.output
    for block, value in outputs.items():
        if evidence.outputs[block] == text and not isinstance(value, str):
            return value
    return text if text is None or state is None else _raw(text, {PRIMARY: state}, PRIMARY)


def _step(node: Any, parts: Sequence[str], position: int) -> tuple[Any, int] | None:
    """Return the member that the next part names, and how many parts its name takes."""
    if isinstance(node, str):
        node = container_in(node)
    if isinstance(node, Mapping):
        # A name may hold dots itself (an exit is `block.exit`): the shortest that exists is taken.
        for end in range(position + 1, len(parts) + 1):
            name = ".".join(parts[position:end])
            if name in node:
                return node[name], end - position
        return None
    if isinstance(node, list | tuple) and parts[position].isdecimal():
        index = int(parts[position])
        return (node[index], 1) if index < len(node) else None
    return None


def _in_primary(evidence: Evidence, parts: Sequence[str]) -> tuple[Any, int] | None:
    if evidence.output is None:
        return None
    step = _step(output_values(evidence)[PRIMARY], parts, 1)
    return (evidence.output, 1) if step is None and parts[1] == "output" else step


def _described(node: Any) -> str:
    if isinstance(node, str):
        inner = container_in(node)
        if inner is None:
            return "is a text"
        node = inner
    if isinstance(node, Mapping):
        names = ", ".join(map(str, list(node)[:_LISTED]))
        more = len(node) - _LISTED
        return f"has {names or 'nothing'}{f' and {more} more' if more > 0 else ''}"
    if isinstance(node, list | tuple):
        return f"is a list of {len(node)}"
    return "is null" if node is None else f"is {node!r}"


LARGEST: Final = 2**63 - 1
"""The largest count; amounts (milliseconds, US dollars) are below it, too."""

COUNTS: Final = ("input_tokens", "output_tokens", *TOKEN_PARTS)
"""The measures that are whole numbers."""

_MEASURES: Final = ("latency_ms", "ttft_ms", "cost_usd", *COUNTS)


def measure_mistake(name: str, value: Any, *, whole: bool = False) -> str | None:
    """Return what is wrong with an amount, or with a count (`whole`), that cannot be stored."""
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= LARGEST:
        return None
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "an integer"
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    return f"{name} is {shown}, not a {'whole ' if whole else ''}number from 0 to {LARGEST}"


def measure_problem(metrics: Metrics) -> str | None:
    """Return what is wrong with the first measure that cannot be stored; None if all can."""
    if metrics is UNMEASURED:
        return None
    values = ((name, getattr(metrics, name)) for name in _MEASURES)
    mistakes = (measure_mistake(n, v, whole=n in COUNTS) for n, v in values if v is not None)
    return next(filter(None, mistakes), None)


@dataclass(frozen=True, slots=True)
class Artifact:
    """The evidence of one work item.

    `output` is the primary output as text; `outputs` has each block's output and `primary_output`,
    as values where those are known. `events` are in the order they happened; `calls` are the model
    calls.
    """

    output: str | None = None
    outputs: Mapping[str, Any] = NOTHING
    state: Any = NOTHING
    events: tuple[Mapping[str, Any], ...] = ()
    metrics: Metrics = UNMEASURED
    errors: tuple[str, ...] = ()
    calls: tuple[Mapping[str, Any], ...] = ()
    case_id: str = ""
    input: Any = None
    expected_output: Any = None
