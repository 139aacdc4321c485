"""The table of scorers, and how one is written in a suite."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from evalcore.checks.scorers.similarity import MODES
from evalcore.mistakes.wording import suggest
from evalcore.model.evidence_path import PathSyntaxError, parse_path
from evalcore.model.suite import ScorerSpec


class Parameter(NamedTuple):
    """One parameter of a scorer: `kind` is amount (≥ 0), mode, path, text, callable or any."""

    kind: str
    default: Any = None


class ScorerRow(NamedTuple):
    """A kind of scorer: where it stands, its parameters, whether it has to be awaited."""

    module: str
    function: str
    parameters: Mapping[str, Parameter]
    is_async: bool = False


_ZERO: Final = Parameter("amount", 0)
_SIMILARITY: Final = {
    "mode": Parameter("mode", "exact"),
    "expected": Parameter("any"),
    "judge": Parameter("text"),
    "model": Parameter("text"),
    "path": Parameter("path"),
}

SCORERS: Mapping[str, ScorerRow] = {
    "latency": ScorerRow(
        "measured", "latency", {"ideal": _ZERO, "max": Parameter("amount", 30_000)}
    ),
    "cost": ScorerRow("measured", "cost", {"ideal": _ZERO, "max": Parameter("amount", 1)}),
    "tokens": ScorerRow(
        "measured",
        "tokens",
        {
            "ideal": _ZERO,
            "max": Parameter("amount", 100_000),
            "input_weight": Parameter("amount", 1),
            "output_weight": Parameter("amount", 1),
        },
    ),
    "similarity": ScorerRow("similarity", "similarity", _SIMILARITY),
    "llm_judge": ScorerRow(
        "judged",
        "llm_judge",
        {"criteria": Parameter("text"), "judge": Parameter("text"), "model": Parameter("text")},
        is_async=True,
    ),
    "custom": ScorerRow(
        "custom",
        "custom",
        {"callable": Parameter("callable"), "behaviour": Parameter("text")},
        is_async=True,
    ),
}


def is_awaited(spec: ScorerSpec) -> bool:
    """Whether a scorer has to be awaited."""
    return SCORERS[spec.kind].is_async or spec.params.get("mode") == "embedding"


class ScorerSyntaxError(ValueError):
    """A scorer is written wrongly; the message says what would work."""


def parse_scorer(raw: object) -> ScorerSpec:
    """Return the scorer that `raw` writes. Raises `ScorerSyntaxError`.

    That is a kind (`latency`), a similarity's mode (`levenshtein`), a mapping `{scorer: kind, name,
    parameter: value, …}` or `{callable: 'module:function', name}`. Keys may be in camelCase.
    """
    if isinstance(raw, str):
        raw = {"callable": raw} if ":" in raw else {"scorer": raw}
    if not isinstance(raw, Mapping):
        raise ScorerSyntaxError("a scorer is a name or a mapping with 'scorer' or 'callable'")
    given = {_snake(str(key)): value for key, value in raw.items()}
    name, kind = given.pop("name", None), _kind(given)
    if name is not None and (not isinstance(name, str) or not name):
        raise ScorerSyntaxError("'name' is a text that is not empty")
    row = SCORERS[kind]
    for key in given:
        if key not in row.parameters:
            hint = suggest(key, row.parameters) or " It has none."
            raise ScorerSyntaxError(f"scorer '{kind}': unknown parameter '{key}'.{hint}")
    params = {key: _value(kind, key, row.parameters[key], given) for key in row.parameters}
    if "max" in params and params["max"] <= params["ideal"]:
        raise ScorerSyntaxError(f"scorer '{kind}': 'max' has to be more than 'ideal'")
    return ScorerSpec(name or _default_name(kind, params), kind, params, named=name is not None)


def _kind(given: dict[str, Any]) -> str:
    """Take the kind out of the keys; raise `ScorerSyntaxError` if there is none."""
    keys = [key for key in ("scorer", "type") if key in given]
    if len(keys) > 1:
        raise ScorerSyntaxError("'scorer' and 'type' mean the same; keep one of them")
    if "callable" in given:
        if keys and given.pop(keys[0]) != "custom":
            raise ScorerSyntaxError("'callable' is a scorer of its own; remove 'scorer'")
        return "custom"
    if not keys:
        raise ScorerSyntaxError("a scorer is a name or a mapping with 'scorer' or 'callable'")
    written = given.pop(keys[0])
    kind = _snake(written) if isinstance(written, str) else written
    if kind in MODES and "mode" not in given:
        given["mode"] = kind
        return "similarity"
    if kind == "custom":
        raise ScorerSyntaxError("scorer 'custom': 'callable' is required")
    if kind not in SCORERS:
        hint = suggest(str(kind), [*SCORERS, *MODES])
        raise ScorerSyntaxError(f"unknown scorer {written!r}.{hint}")
    return str(kind)


def _value(kind: str, key: str, parameter: Parameter, given: Mapping[str, Any]) -> Any:
    value = given.get(key)
    where = f"scorer '{kind}': '{key}'"
    if parameter.kind == "callable":
        if not isinstance(value, str) or re.fullmatch(r"[^:\s]+:[^:\s]+", value) is None:
            raise ScorerSyntaxError(f"{where} is a function, written 'module:function'")
        return value
    if value is None:
        return parameter.default
    if parameter.kind == "amount":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise ScorerSyntaxError(f"{where} is a number, 0 or more")
    elif parameter.kind == "mode" and value not in MODES:
        raise ScorerSyntaxError(f"{where} is one of {', '.join(MODES)}, not {value!r}")
    elif parameter.kind in {"text", "path"} and (not isinstance(value, str) or not value):
        raise ScorerSyntaxError(f"{where} is a text that is not empty")
    if parameter.kind == "path":
        try:
            parse_path(value)
        except PathSyntaxError as error:
            raise ScorerSyntaxError(f"{where}: {error}") from None
    return value


def _default_name(kind: str, params: Mapping[str, Any]) -> str:
    if kind == "similarity":
        return str(params["mode"])
    if kind == "custom":
        return str(params["callable"]).rpartition(":")[2]
    return kind


def _snake(name: str) -> str:
    spelled = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return spelled.replace("-", "_")
