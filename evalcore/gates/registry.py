"""The table of gates, and how a gate is written in a file or on the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evalcore.gates import builtin, comparing
from evalcore.mistakes.wording import suggest
from evalcore.model.gate import GateResult, GateSpec
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary

Decide = Callable[[Mapping[str, Any], Summary, Policy], GateResult]

CUSTOM = "custom"


class Parameter(NamedTuple):
    """One parameter of a gate.

    `kind` is share (0..1), level (strictly between 0 and 1), amount (≥ 0), flag, ids (a list of
    texts), text, callable (`module:function`) or choice (one of `choices`).
    """

    kind: str
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()


class GateRow(NamedTuple):
    """A gate: what it says of itself, its parameters, its decision, a value as an example.

    `decide` is None where a function of somebody's own decides (gates.own_functions).
    """

    about: str
    parameters: Mapping[str, Parameter]
    decide: Decide | None
    example: str = ""


_SHARE = Parameter("share", required=True)
_AMOUNT = Parameter("amount", required=True)
_OFF = Parameter("flag", default=False)

GATES: Mapping[str, GateRow] = {
    "no_regressions": GateRow(
        "nothing is worse than the baseline's",
        {
            "allow_metric_regressions": _OFF,
            "first_run": Parameter("choice", "inconclusive", choices=("inconclusive", "pass")),
        },
        comparing.no_regressions,
    ),
    "no_significant_regression": GateRow(
        "the scores are surely not worse than the baseline's by more than the margin",
        {"margin": Parameter("share", 0.02), "alpha": Parameter("level", 0.05)},
        comparing.no_significant_regression,
    ),
    "threshold": GateRow(
        "the run's score is at least this", {"threshold": _SHARE}, builtin.threshold, "0.8"
    ),
    "score_at_least": GateRow(
        "the run's score is at least this", {"threshold": _SHARE}, builtin.score_at_least, "0.8"
    ),
    "pass_rate": GateRow(
        "the share of cases that passed is at least this",
        {"threshold": _SHARE, "per_variant": _OFF},
        builtin.pass_rate,
        "0.9",
    ),
    "required_cases": GateRow(
        "each of these cases passes in every variant",
        {"case_ids": Parameter("ids", required=True)},
        builtin.required_cases,
        "case-1,case-2",
    ),
    "required_assertions": GateRow(
        "every required assertion reaches its own threshold", {}, builtin.required_assertions
    ),
    "errors": GateRow("no item and no assertion is in error", {}, builtin.errors),
    "error_rate_under": GateRow(
        "the share of items in error is below this",
        {"threshold": _SHARE},
        builtin.error_rate_under,
        "0.05",
    ),
    "latency_under": GateRow(
        "the slowest item takes less (ms)", {"max": _AMOUNT}, builtin.latency_under, "2000"
    ),
    "p95_latency_under": GateRow(
        "95 % of the items take less (ms)", {"max": _AMOUNT}, builtin.p95_latency_under, "2000"
    ),
    "cost_under": GateRow(
        "the whole run costs less (USD)",
        {"max": _AMOUNT, "per_case": _OFF, "include_judges": _OFF},
        builtin.cost_under,
        "0.5",
    ),
    "tokens_under": GateRow(
        "the whole run needs fewer", {"max": _AMOUNT}, builtin.tokens_under, "100000"
    ),
    CUSTOM: GateRow(
        "a function of yours decides",
        {
            "callable": Parameter("callable", required=True),
            "name": Parameter("text"),
            "description": Parameter("text"),
        },
        None,
        "module:function",
    ),
}


class GateSyntaxError(ValueError):
    """A gate is written wrongly; the message says what would work."""


def parse_gate(raw: object) -> GateSpec:
    """Return the gate that `raw` writes: `name`, or `{gate: name, parameter: value, …}`.

    Names and parameters may be in camelCase. Raises `GateSyntaxError`.
    """
    if isinstance(raw, str):
        raw = {"gate": raw}
    if not isinstance(raw, Mapping) or not isinstance(raw.get("gate"), str):
        raise GateSyntaxError("a gate is a name or a mapping with 'gate: NAME'")
    name = _snake(raw["gate"])
    row = GATES.get(name)
    if row is None:
        raise GateSyntaxError(f"unknown gate '{raw['gate']}'.{suggest(name, GATES)}")
    given: dict[str, Any] = {}
    for key, value in raw.items():
        if key == "gate":
            continue
        snake = _snake(str(key))
        if snake not in row.parameters:
            hint = suggest(snake, row.parameters) or " It has none."
            raise GateSyntaxError(f"gate '{name}': unknown parameter '{key}'.{hint}")
        if snake in given:
            raise GateSyntaxError(f"gate '{name}': '{snake}' is given twice ('{key}' is the same)")
        given[snake] = value
    spec = GateSpec(name, {key: _value(name, key, row, given) for key in row.parameters})
    if spec.params.get("name") in GATES:
        taken = spec.params["name"]
        raise GateSyntaxError(f"gate '{name}': '{taken}' is the name of another gate")
    return spec


def with_defaults(gate: GateSpec) -> Mapping[str, Any]:
    """Return the parameters of a gate that was not parsed, or by an older version."""
    defaults = {key: one.default for key, one in GATES[gate.gate].parameters.items()}
    return {**defaults, **gate.params}


def parse_gate_option(text: str) -> GateSpec:
    """Return the gate of `--gate NAME`, `--gate NAME=VALUE` or `--gate NAME:key=value,…`.

    In a list of ids the commas stay: `required_cases=a,b`. Raises `GateSyntaxError`.
    """
    found = re.match(r"([^=:]*)([=:]?)(.*)", text, re.DOTALL)
    name, separator, rest = found.groups() if found else (text, "", "")
    name = name.strip()
    row = GATES.get(_snake(name))
    if row is None:
        return parse_gate(name)
    raw: dict[str, Any] = {"gate": name}
    if separator == "=":
        if not row.parameters:
            raise GateSyntaxError(f"gate '{name}' takes no value")
        first = next(iter(row.parameters))
        raw[first] = _literal(rest, row.parameters[first])
    elif separator == ":":
        for key, value in _pairs(name, rest):
            raw[key] = _literal(value, row.parameters.get(_snake(key)))
    elif row.example:
        first = next(iter(row.parameters))
        raise GateSyntaxError(f"gate '{name}': '{first}' is required: {name}={row.example}")
    return parse_gate(raw)


def _pairs(name: str, text: str) -> list[tuple[str, str]]:
    """Return the pairs of `key=value,key=value`; a part without `=` goes on with a value."""
    pairs: list[tuple[str, str]] = []
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if separator:
            pairs.append((key.strip(), value))
        elif pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part}")
        else:
            first = next(iter(GATES[_snake(name)].parameters), "key")
            raise GateSyntaxError(f"gate '{name}': write {name}:{first}=value, or {name}=value")
    return pairs


def _value(gate: str, key: str, row: GateRow, given: Mapping[str, Any]) -> Any:
    parameter = row.parameters[key]
    if key not in given:
        if parameter.required:
            raise GateSyntaxError(f"gate '{gate}': '{key}' is required")
        return parameter.default
    value = given[key]
    wrong = _mistake(parameter, value)
    if wrong:
        raise GateSyntaxError(f"gate '{gate}': '{key}' is {wrong}")
    return tuple(dict.fromkeys(value)) if parameter.kind == "ids" else value


def _mistake(parameter: Parameter, value: Any) -> str | None:
    """Return what a value should be, if it is not that."""
    match parameter.kind:
        case "flag":
            return None if isinstance(value, bool) else "true or false"
        case "choice":
            fits = isinstance(value, str) and value in parameter.choices
            return None if fits else f"one of {', '.join(parameter.choices)}"
        case "ids":
            texts = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
            return None if texts and value else "a list of case ids, at least one"
        case "text":
            fits = isinstance(value, str) and bool(value.strip())
            return None if fits else "a text"
        case "callable":
            found = re.fullmatch(r"[^:\s]+:[^:\s]+", value) if isinstance(value, str) else None
            return None if found else "a function, written 'module:function'"
        case _:
            return _wrong_number(parameter.kind, value)


def _wrong_number(kind: str, value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        return "a number, 0 or more"
    if kind == "share" and value > 1:
        return f"a share from 0 to 1, not {value}"
    if kind == "level" and not 0 < value < 1:
        return f"a level between 0 and 1, not {value}"
    return None


def _literal(text: str, parameter: Parameter | None) -> Any:
    text = text.strip()
    kind = parameter.kind if parameter is not None else ""
    if kind == "ids":
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind in {"text", "choice", "callable"}:
        return text
    if text in {"true", "false"}:
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _snake(name: str) -> str:
    """Return camelCase as snake_case; digits belong to the word before them (`p95Latency`)."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
