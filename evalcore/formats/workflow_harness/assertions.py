"""Assertions in the words of workflow files → the engine's checks.

Texts are compared untrimmed, regular expressions are Python's (docs/reference/workflow-files.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from evalcore.formats.assertions.custom_assertions import find_plugin
from evalcore.formats.assertions.graders import Graders
from evalcore.formats.text.documents import parse_json
from evalcore.formats.text.syntax_reasons import json_reason
from evalcore.formats.workflow_harness.shapes import (
    ASSERTION_TYPES,
    AssertionShape,
    CustomAssertion,
)
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.mistakes.wording import describe, suggest, suggest_assertion
from evalcore.model.assertion import Assertion

_THRESHOLDS = {"levenshtein": 5, "bleu": 0.5, "rouge-n": 0.75}
_MEASURES = {"cost", "latency", "tokens"}
_JUDGED = {"llm_judge", "similar"}
_CONFIG_KEYS = {"equals": ("mode",), "regex": ("flags",)}
_FREE_CONFIG = {"llm_judge", "similar", "python"}


def read_assertion(
    raw: object,
    loc: Loc,
    problems: Problems,
    *,
    block: str | None,
    folder: Path,
    graders: Graders | None = None,
) -> Assertion | None:
    """Return the assertion at `loc`, or note what is wrong with it and return None.

    `graders` know the judges.
    """
    before = problems.count
    if not isinstance(raw, dict):
        problems.add(loc, f"an assertion is a mapping with 'type', got {describe(raw)}")
        return None
    kind = raw.get("type")
    if not isinstance(kind, str):
        wanted = f"expected text, got {describe(kind)}"
        problems.add((*loc, "type"), wanted if "type" in raw else _missing_type(raw))
        return None
    bare = kind.removeprefix("not-")
    custom = bare.startswith("custom:")
    if not custom and bare not in ASSERTION_TYPES:
        known = [*ASSERTION_TYPES, "custom:<id>"]
        if kind != bare:
            known.extend([f"not-{name}" for name in known])
        hint = suggest_assertion(kind, known if kind == bare else known[len(known) // 2 :])
        problems.add((*loc, "type"), f"unknown assertion {describe(kind)}.{hint}")
        return None
    shape: Any = CustomAssertion if custom else AssertionShape
    try:
        checked = adapter(shape).validate_python(raw)
    except ValidationError as error:
        problems.add_invalid(error, raw, shape, loc)
        return None
    _check_config(bare, checked.get("config") or {}, loc, problems)
    if bare in _JUDGED:
        check, params = _judged(bare, checked, loc, problems, graders or Graders(folder))
    else:
        check, params = _check_of(bare, checked, loc, problems, folder)
    if problems.count > before:
        return None
    return Assertion(
        type=kind,
        check=check,
        name=_name(kind, checked.get("value")),
        params=params,
        block=block,
        weight=float(checked.get("weight", 1.0)),
        negate=kind.startswith("not-"),
        transform=checked.get("transform"),
        metric=checked.get("metric"),
    )


def _check_config(kind: str, config: Mapping[str, Any], loc: Loc, problems: Problems) -> None:
    """Note a key that the type does not know: its check would quietly be another one."""
    if kind in _FREE_CONFIG or kind.startswith("custom:"):
        return
    known = _CONFIG_KEYS.get(kind, ())
    for key in config:
        if key not in known:
            hint = suggest(key, known) if known else f" '{kind}' takes no 'config'."
            problems.add((*loc, "config", key), f"unknown key {describe(key)}.{hint}")


def _missing_type(raw: Mapping[str, Any]) -> str:
    for key in raw:
        if key in ASSERTION_TYPES:
            return f"is required; write {{type: {key}, value: …}}"
    return "is required"


def _check_of(  # noqa: C901  (a table in the form of branches)
    kind: str, raw: Mapping[str, Any], loc: Loc, problems: Problems, folder: Any
) -> tuple[str, dict[str, Any]]:
    """Return the engine's check and its parameters."""
    value, config = raw.get("value"), raw.get("config") or {}
    fold = kind.startswith("i") and kind != "is-json"
    result: tuple[str, dict[str, Any]]
    if kind in {"contains", "icontains"}:
        result = "contains", {"value": str(value), "fold": fold}
    elif kind in {"starts-with", "ends-with"}:
        result = kind, {"value": str(value), "trim": None}
    elif kind.endswith(("contains-all", "contains-any")):
        result = (
            kind.removeprefix("i"),
            {"values": [str(item) for item in value or ()], "fold": fold},
        )
    elif kind == "equals":
        result = _equals(value, config, loc, problems)
    elif kind == "regex":
        flags = config.get("flags", "")
        result = "regex", {"pattern": str(value), "flags": str(flags), "dialect": "python"}
    elif kind == "word-count":
        result = "word-count", _word_bounds(value, loc, problems)
    elif kind in {"is-json", "contains-json"}:
        result = kind, {"schema": value}
    elif kind in _THRESHOLDS:
        threshold = raw.get("threshold")
        limit = _THRESHOLDS[kind] if threshold is None else threshold
        result = kind, {"value": str(value), "threshold": limit}
    elif kind in _MEASURES:
        result = kind, {"threshold": raw["threshold"]}
    elif kind == "python":
        result = (
            "python",
            {"callable": raw["callable"], "config": config, "threshold": raw.get("threshold")},
        )
    else:
        result = "custom", find_plugin(kind.removeprefix("custom:"), config, folder, loc, problems)
    return result


def _word_bounds(value: object, loc: Loc, problems: Problems) -> dict[str, Any]:
    bounds: Mapping[str, Any] = (
        value if isinstance(value, Mapping) else {"min": value, "max": value}
    )
    low, high = bounds.get("min"), bounds.get("max")
    if low is not None and high is not None and low > high:
        message = f"'min' ({low}) is above 'max' ({high}): no number of words is both"
        problems.add((*loc, "value"), message)
    return {"min": low, "max": high}


def _judged(
    kind: str, raw: Mapping[str, Any], loc: Loc, problems: Problems, graders: Graders
) -> tuple[str, dict[str, Any]]:
    from evalcore.formats.assertions.llm_judge import read_llm_judge, read_similar

    if kind == "similar":
        return kind, read_similar(raw, graders, loc, problems)
    return read_llm_judge(raw, graders, loc, problems)


def _equals(
    value: object, config: Mapping[str, Any], loc: Loc, problems: Problems
) -> tuple[str, dict[str, Any]]:
    mode = config.get("mode")
    if value is None:
        hint = "; JSON's null is written in quotes" if mode == "json" else ""
        problems.add((*loc, "value"), f"is required{hint}")
    if mode == "json":
        return "equals-json", {"value": _json_value(value, loc, problems)}
    if mode is not None:
        problems.add((*loc, "config", "mode"), f"unknown mode {mode!r}; only 'json' is known")
    return "equals", {"value": str(value), "trim": None}


def _json_value(value: object, loc: Loc, problems: Problems) -> object:
    """Return what the value says as JSON: text is parsed, a YAML value stands for itself."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=_refuse_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        problems.add((*loc, "value"), f"is not JSON: {_json_words(value, error)}")
        return None


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a number that JSON can hold")


def _json_words(text: str, error: Exception) -> str:
    try:
        parse_json(text.encode(errors="replace"))
    except ValueError as reason:
        return json_reason(reason)
    return str(error)


def _name(kind: str, value: object) -> str:
    if isinstance(value, list):
        return f"{kind}-{len(value)}"
    if isinstance(value, str | int | float):
        return f"{kind}-{str(value)[:30]}"
    return kind
