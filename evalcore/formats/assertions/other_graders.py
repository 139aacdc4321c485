"""Graders of programs, trajectories, fields, measures; composites of any."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from evalcore.formats.assertions.grader_errors import AssertionValueError
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import suggest
from evalcore.trust.secret_options import secret_options

if TYPE_CHECKING:
    from evalcore.formats.assertions.graders import Graders, MakeMember

_ARGS_MATCHES: Final = ("exact", "ignore", "subset", "superset")
_AGGREGATORS: Final = {
    "weighted_average": "mean",
    "weighted_mean": "mean",
    "mean": "mean",
    "threshold": "threshold",
    "minimum": "minimum",
    "min": "minimum",
    "code_grader": "code",
    "code": "code",
    "llm_grader": "judge",
    "judge": "judge",
}
_MEMBER_KEYS: Final = ("assertions", "evaluators", "members")
_COMMON: Final = frozenset({"type", "name", "weight", "negate", "required", "min_score", "flags"})
_SIMILAR_THRESHOLD: Final = 0.8


def read_other(
    graders: Graders,
    kind: str,
    raw: Mapping[str, Any],
    loc: Loc,
    problems: Problems,
    make: MakeMember,
) -> tuple[str, dict[str, Any]]:
    """Return the check and its parameters; raise `AssertionValueError`."""
    from evalcore.formats.assertions.graders import threshold_of

    params = deepcopy({key: value for key, value in raw.items() if key not in _COMMON})
    params["threshold"] = threshold_of(raw)
    match kind:
        case "code-grader":
            return kind, _program(params)
        case "composite":
            return kind, _composite(graders, params, raw, loc, problems, make)
        case "tool-trajectory":
            return kind, _trajectory(params)
        case "field-accuracy":
            for field in params["fields"]:
                field["match"] = field.get("match", "exact").replace("-", "_")
            graders.reference_fields.compare(field["path"] for field in params["fields"])
            return kind, params
        case "execution-metrics":
            if not any(key.startswith(("max_", "target_")) for key in params):
                raise AssertionValueError("checks nothing: give at least one maximum")
            return kind, params
        case _:
            return kind, similar_params(graders, raw, loc, problems)


def similar_params(
    graders: Graders, raw: Mapping[str, Any], loc: Loc, problems: Problems
) -> dict[str, Any]:
    """Return the parameters of `similar`; without `value` the expected output is compared with."""
    threshold = raw.get("threshold")
    return {
        "value": raw.get("value"),
        "threshold": _SIMILAR_THRESHOLD if threshold is None else float(threshold),
        "judges": [graders.embedding(raw, loc, problems)],
    }


def _program(params: dict[str, Any]) -> dict[str, Any]:
    if "timeout" in params and "timeout_ms" in params:
        raise AssertionValueError("'timeout' (s) and 'timeout_ms' are both given; keep one")
    for option in secret_options({"env": params.get("env")}):
        if option.is_literal:
            raise AssertionValueError(
                f"'{option.name}' holds a secret as it is, which would be stored; write "
                f"${{{{ {option.path[-1]} }}}} and set that variable"
            )
    if "timeout" in params:
        params["timeout_ms"] = params.pop("timeout") * 1000
    return params


def _trajectory(params: dict[str, Any]) -> dict[str, Any]:
    mode = params["mode"]
    if mode != "any_order" and "minimums" in params:
        raise AssertionValueError("'minimums' belong to the mode any_order")
    if "minimums" not in params and "expected" not in params:
        needed = "'minimums' or 'expected'" if mode == "any_order" else "'expected'"
        raise AssertionValueError(f"mode {mode} needs {needed}")
    general = params.pop("args_match", "superset")
    _check_args_match(general)
    for item in params.get("expected", ()):
        item.setdefault("args_match", general)
        _check_args_match(item["args_match"])
        args = item.get("args")
        if not (args is None or args == "any" or isinstance(args, Mapping)):
            raise AssertionValueError("'args' is a mapping of arguments, or 'any'")
    return params


def _check_args_match(value: Any) -> None:
    named = isinstance(value, list) and all(isinstance(one, str) for one in value)
    if not named and value not in _ARGS_MATCHES:
        known = ", ".join(_ARGS_MATCHES)
        raise AssertionValueError(f"'args_match' is one of {known}, or a list of arguments' names")


def _composite(
    graders: Graders,
    params: dict[str, Any],
    raw: Mapping[str, Any],
    loc: Loc,
    problems: Problems,
    make: MakeMember,
) -> dict[str, Any]:
    from evalcore.formats.assertions.graders import check_member

    keys = [key for key in _MEMBER_KEYS if key in raw]
    if len(keys) != 1:
        raise AssertionValueError("a composite has its members under 'assertions'")
    members = []
    for index, one in enumerate(raw[keys[0]]):
        checked = check_member(one, (*loc, keys[0], index), problems)
        if checked is not None:
            members.append(make(checked))
    names = [member.name for member in members]
    for name in names:
        if names.count(name) > 1:
            raise AssertionValueError(f"two members are called '{name}'; give them a 'name'")
    aggregator = _aggregator(graders, raw.get("aggregator", "weighted_average"), loc, problems)
    for name in aggregator.get("weights") or ():
        if members and name not in names:
            message = f"aggregator.weights: no member is called '{name}'.{suggest(name, names)}"
            raise AssertionValueError(message)
    return {
        "members": [list(member) for member in members],
        "aggregator": aggregator,
        "threshold": params["threshold"],
    }


def _aggregator(graders: Graders, raw: Any, loc: Loc, problems: Problems) -> dict[str, Any]:
    written = {"type": raw} if isinstance(raw, str) else dict(raw)
    kind = _AGGREGATORS.get(written["type"].replace("-", "_"))
    if kind is None:
        known = ("weighted_average", "threshold", "minimum", "code-grader", "llm-grader")
        message = f"aggregator: unknown type '{written['type']}'.{suggest(written['type'], known)}"
        raise AssertionValueError(message)
    written["type"] = kind
    if kind == "threshold" and "threshold" not in written:
        raise AssertionValueError("aggregator 'threshold' needs 'threshold': the share that passes")
    if kind == "code":
        if ("command" in written) == ("path" in written):
            raise AssertionValueError("aggregator 'code-grader' needs 'command'")
        written["command"] = written.pop("path", written.get("command"))
    if kind == "judge":
        place = (*loc, "aggregator")
        prompt = written.get("prompt", _JUDGE_PROMPT)
        return {
            "type": kind,
            "judges": graders.judges(written, place, problems),
            "prompt": graders.prompt(prompt),
        }
    return written


_JUDGE_PROMPT: Final = (
    "Several checks were made of an output. Decide from their results, and from the output itself, "
    "how good it is on the whole.\n\nResults: {{results}}"
)
