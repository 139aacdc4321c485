"""Assertions in the words of test files → the engine's checks.

Regular expressions are ECMAScript's; `starts-with`, `ends-with` and `equals` trim as ECMAScript
does (docs/reference/test-files.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalcore.formats.assertions.grader_errors import AssertionValueError
from evalcore.formats.assertions.graders import Graders
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.assertion import Assertion

DEFAULT_REQUIRED = 0.8

_MEASURES = {"latency": "latency", "cost": "cost", "token-usage": "tokens"}


GRADER_TYPES = frozenset(
    {
        "llm-grader",
        "rubrics",
        "code-grader",
        "composite",
        "tool-trajectory",
        "field-accuracy",
        "execution-metrics",
        "similar",
    }
)


# Of the types that look for one text: the check and what it needs beside the text.
_TEXT_CHECKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "contains": ("contains", {"fold": False}),
    "icontains": ("contains", {"fold": True}),
    "starts-with": ("starts-with", {"trim": "ecmascript"}),
    "ends-with": ("ends-with", {"trim": "ecmascript"}),
    "equals": ("equals", {"trim": "ecmascript"}),
}


def make_text_assertion(kind: str, value: str) -> Assertion | None:
    """Return an assertion of which only type and text are written; None for other types.

    The same as `make_assertion` gives, in half the time.
    """
    row = _TEXT_CHECKS.get(kind)
    if row is None:
        return None
    check, params = row
    name = f"{kind}-{value[:30]}"
    params = {"value": value, **params}
    return Assertion._make((kind, check, name, params, None, 1.0, None, False, None, None))


def make_assertion(
    raw: Mapping[str, Any],
    graders: Graders | None = None,
    loc: Loc = (),
    problems: Problems | None = None,
) -> Assertion:
    """Return the assertion of a validated mapping; raise `AssertionValueError`.

    `graders` know the suite's folder and targets; what is wrong with those is noted at `loc`.
    """
    kind = raw["type"].replace("_", "-")
    value = raw.get("value")
    params: dict[str, Any]
    if kind in GRADER_TYPES:
        check, params = _grader(kind, raw, graders, loc, problems)
    elif kind in _TEXT_CHECKS:
        check, more = _TEXT_CHECKS[kind]
        params = {"value": value, **more}
    elif kind == "regex":
        check = "regex"
        params = {"pattern": value, "flags": raw.get("flags", ""), "dialect": "ecmascript"}
    elif kind == "is-json":
        check, params = kind, {"schema": None}
    elif isinstance(value, list):
        check, params = kind.removeprefix("i"), {"values": value, "fold": kind[0] == "i"}
    else:
        check, params = _measure(kind, raw)
    required = _required(raw) if "required" in raw or "min_score" in raw else None
    return Assertion(
        kind,
        check,
        raw.get("name") or _name(kind, value),
        params,
        None,
        float(raw.get("weight", 1.0)),
        required,
        raw.get("negate", False),
    )


def _measure(kind: str, raw: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    other = {"cost": "budget", "token-usage": "max_total"}.get(kind, "threshold")
    given = [name for name in ("threshold", other) if name in raw]
    if len(set(given)) > 1:
        raise AssertionValueError(f"'{other}' is another name of 'threshold'; keep one")
    maxima = {name: raw[name] for name in ("max_input", "max_output") if name in raw}
    threshold = raw[given[0]] if given else None
    if maxima:
        return "token-maxima", {"max_total": threshold, **maxima}
    if threshold is None:
        raise AssertionValueError("'threshold' is required: the most that is allowed")
    return _MEASURES[kind], {"threshold": threshold}


def _grader(
    kind: str,
    raw: Mapping[str, Any],
    graders: Graders | None,
    loc: Loc,
    problems: Problems | None,
) -> tuple[str, dict[str, Any]]:
    found = problems or Problems("assertion", lambda _: None)
    known = graders or Graders(Path())

    def make(member: Mapping[str, Any]) -> Assertion:
        return make_assertion(member, known, loc, found)

    check, params = known.read(kind, raw, loc, found, make)
    if problems is None and found.noted:
        raise AssertionValueError(found.noted[0].message)
    return check, params


def _required(raw: Mapping[str, Any]) -> float | None:
    """Return the score below which the test fails: `required: true` means 0.8."""
    if "required" in raw and "min_score" in raw:
        raise AssertionValueError("'required' and its alias 'min_score' are both given; keep one")
    required = raw.get("required", raw.get("min_score"))
    if isinstance(required, bool):
        return DEFAULT_REQUIRED if required else None
    return None if required is None else float(required)


def _name(kind: str, value: str | Sequence[str] | None) -> str:
    if value is None:
        return kind.replace("-", "_")
    return f"{kind}-{value[:30]}" if isinstance(value, str) else f"{kind}-{len(value)}"
