"""The table of gates, and how a gate is written in a file or on the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from evalcore.gates import builtin
from evalcore.model.gate import GateResult, GateSpec
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary

Decide = Callable[[Mapping[str, Any], Summary, Policy], GateResult]


class Parameter(NamedTuple):
    """One parameter of a gate: `kind` is share (0..1), amount (≥ 0) or flag."""

    kind: str
    default: Any = None
    required: bool = False


class GateRow(NamedTuple):
    """A gate: what it says of itself, its parameters, and its decision."""

    about: str
    parameters: Mapping[str, Parameter]
    decide: Decide


_SHARE = Parameter("share", required=True)
_AMOUNT = Parameter("amount", required=True)

GATES: Mapping[str, GateRow] = {
    "threshold": GateRow(
        "the run's score is at least this", {"threshold": _SHARE}, builtin.threshold
    ),
    "score_at_least": GateRow(
        "the run's score is at least this", {"threshold": _SHARE}, builtin.score_at_least
    ),
    "pass_rate": GateRow(
        "the share of cases that passed is at least this",
        {"threshold": _SHARE, "per_variant": Parameter("flag", default=False)},
        builtin.pass_rate,
    ),
    "required_assertions": GateRow(
        "every required assertion reaches its own threshold", {}, builtin.required_assertions
    ),
    "errors": GateRow("no item and no assertion is in error", {}, builtin.errors),
    "error_rate_under": GateRow(
        "the share of items in error is below this", {"threshold": _SHARE}, builtin.error_rate_under
    ),
    "latency_under": GateRow(
        "the slowest item takes less (ms)", {"max": _AMOUNT}, builtin.latency_under
    ),
    "p95_latency_under": GateRow(
        "95 % of the items take less (ms)", {"max": _AMOUNT}, builtin.p95_latency_under
    ),
    "cost_under": GateRow("the whole run costs less (USD)", {"max": _AMOUNT}, builtin.cost_under),
    "tokens_under": GateRow("the whole run needs fewer", {"max": _AMOUNT}, builtin.tokens_under),
}


class GateSyntaxError(ValueError):
    """A gate is written wrongly; the message says what would work."""


def parse_gate(raw: object) -> GateSpec:
    """Return the gate that `raw` writes: `name`, or `{gate: name, parameter: value, …}`.

    Parameters may be in camelCase. Raises `GateSyntaxError`.
    """
    if isinstance(raw, str):
        raw = {"gate": raw}
    if not isinstance(raw, Mapping) or not isinstance(raw.get("gate"), str):
        raise GateSyntaxError("a gate is a name or a mapping with 'gate: NAME'")
    name = _snake(raw["gate"])
    row = GATES.get(name)
    if row is None:
        raise GateSyntaxError(f"unknown gate '{raw['gate']}'.{_suggestion(name, GATES)}")
    given = {_snake(str(key)): value for key, value in raw.items() if key != "gate"}
    for key in given:
        if key not in row.parameters:
            hint = _suggestion(key, row.parameters)
            raise GateSyntaxError(f"gate '{name}': unknown parameter '{key}'.{hint}")
    return GateSpec(name, {key: _value(name, key, row, given) for key in row.parameters})


def parse_gate_option(text: str) -> GateSpec:
    """Return the gate of `--gate NAME`, `--gate NAME=VALUE` or `--gate NAME:key=value,…`."""
    name, separator, rest = text.partition(":") if ":" in text else text.partition("=")
    row = GATES.get(_snake(name.strip()))
    raw: dict[str, Any] = {"gate": name.strip()}
    if separator == "=" and row is not None:
        if not row.parameters:
            raise GateSyntaxError(f"gate '{name}' takes no value")
        raw[next(iter(row.parameters))] = _literal(rest)
    elif separator == ":":
        for pair in rest.split(","):
            key, _, value = pair.partition("=")
            raw[key.strip()] = _literal(value)
    return parse_gate(raw)


def _value(gate: str, key: str, row: GateRow, given: Mapping[str, Any]) -> Any:
    parameter = row.parameters[key]
    if key not in given:
        if parameter.required:
            raise GateSyntaxError(f"gate '{gate}': '{key}' is required")
        return parameter.default
    value = given[key]
    if parameter.kind == "flag":
        if isinstance(value, bool):
            return value
        raise GateSyntaxError(f"gate '{gate}': '{key}' is true or false")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise GateSyntaxError(f"gate '{gate}': '{key}' is a number, 0 or more")
    if parameter.kind == "share" and value > 1:
        raise GateSyntaxError(f"gate '{gate}': '{key}' is a share from 0 to 1, not {value}")
    return value


def _literal(text: str) -> Any:
    text = text.strip()
    if text in {"true", "false"}:
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _suggestion(word: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(word, list(known), n=1)
    if near:
        return f" Did you mean '{near[0]}'?"
    return f" Known: {', '.join(sorted(known))}." if known else " It has none."
