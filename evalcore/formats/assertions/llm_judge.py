"""`llm_judge` and `similar` in the words of workflow files and of suites → checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.formats.assertions.grader_errors import AssertionValueError
from evalcore.formats.assertions.graders import Graders, criteria_params
from evalcore.judging.grading import DEFAULT_PROMPT
from evalcore.judging.panel import AGGREGATIONS
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.mistakes.wording import describe, suggest

_JUDGED: Final = ("judge", "judges", "target", "model", "temperature", "votes", "aggregation")
_KEYS: Final = ("rubric", "criteria", "prompt", "threshold", "min_score", *_JUDGED)
_SIMILAR_KEYS: Final = ("judge", "target", "model", "provider", "base_url", "api_key", "threshold")
_SIMILAR_THRESHOLD: Final = 0.8


def read_llm_judge(
    raw: Mapping[str, Any], graders: Graders, loc: Loc, problems: Problems
) -> tuple[str, dict[str, Any]]:
    """Return the check of an `llm_judge` and its parameters; note what is wrong with it.

    What is judged by stands in `config.rubric` (`criteria`, `value`): a text, the path of one, or a
    list of criteria.
    """
    config = raw.get("config") or {}
    own = {key: raw[key] for key in ("criteria", "min_score", *_JUDGED) if key in raw}
    given = {**config, **own}
    for key in config:
        if key not in _KEYS:
            message = f"unknown key {describe(key)}.{suggest(key, _KEYS)}"
            problems.add((*loc, "config", key), message)
    try:
        return _check_of({**given, "value": raw.get("value")}, raw, graders, loc, problems)
    except AssertionValueError as error:
        problems.add(loc, str(error))
        return "unavailable", {}


def _check_of(
    given: Mapping[str, Any],
    raw: Mapping[str, Any],
    graders: Graders,
    loc: Loc,
    problems: Problems,
) -> tuple[str, dict[str, Any]]:
    named = [key for key in ("rubric", "criteria", "value") if given.get(key) is not None]
    if len(named) > 1:
        raise AssertionValueError(f"'{named[0]}' and '{named[1]}' mean the same; keep one")
    if not named and not given.get("prompt"):
        raise AssertionValueError("needs a rubric: what a good output does (`config.rubric`)")
    rubric = given[named[0]] if named else None
    params = {
        "judges": _judges(given, graders, loc, problems),
        "votes": _votes(given),
        "aggregation": _aggregation(given),
        "threshold": _threshold(given, raw),
        "prompt": graders.prompt(_text(given, "prompt")),
    }
    if isinstance(rubric, list):
        return "rubrics", {**params, "criteria": criteria_params(_criteria(rubric))}
    if rubric is not None and (not isinstance(rubric, str) or not rubric.strip()):
        raise AssertionValueError(f"the rubric is a text or a list of criteria, not {rubric!r}")
    written = graders.prompt(rubric)
    if written is not None:
        params["prompt"] = f"{params['prompt'] or DEFAULT_PROMPT}\n\nCriteria:\n{written}"
    return "llm-grader", params


def _criteria(rubric: list[Any]) -> Any:
    from pydantic import ValidationError

    from evalcore.formats.assertions.grader_shapes import Criteria

    try:
        return adapter(Criteria).validate_python(rubric)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("<"))
        raise AssertionValueError(f"rubric: {where}: {first['msg']}") from None


def _judges(
    given: Mapping[str, Any], graders: Graders, loc: Loc, problems: Problems
) -> list[dict[str, Any]]:
    named = [key for key in ("judge", "target", "judges") if key in given]
    if len(named) > 1:
        raise AssertionValueError(f"'{named[0]}' and '{named[1]}' name judges; keep one")
    common = {key: given[key] for key in ("model", "temperature") if key in given}
    if not named:
        return graders.judges(common, loc, problems)
    listed = given[named[0]]
    written = listed if isinstance(listed, list) else [listed]
    if not written:
        raise AssertionValueError(f"'{named[0]}' names no judge")
    found = []
    for one in written:
        if isinstance(one, Mapping):
            found.append({**common, **graders.inline(one, loc, problems)})
        elif isinstance(one, str) and one:
            found.extend(graders.judges({**common, "judge": one}, loc, problems))
        else:
            raise AssertionValueError(f"a judge is a target's name or {{provider, model}}: {one!r}")
    return found


def _votes(given: Mapping[str, Any]) -> int:
    votes = given.get("votes", 1)
    if isinstance(votes, bool) or not isinstance(votes, int) or not 1 <= votes <= 100:
        raise AssertionValueError("'votes' is a whole number from 1 to 100")
    return votes


def _aggregation(given: Mapping[str, Any]) -> str:
    aggregation = given.get("aggregation", "mean")
    if aggregation not in AGGREGATIONS:
        raise AssertionValueError(f"'aggregation' is one of {', '.join(AGGREGATIONS)}")
    return str(aggregation)


def _threshold(given: Mapping[str, Any], raw: Mapping[str, Any]) -> float | None:
    for value in (raw.get("threshold"), given.get("threshold"), given.get("min_score")):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise AssertionValueError(f"the score that passes is a number from 0 to 1: {value!r}")
        return float(value)
    return None


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise AssertionValueError(f"'{key}' is a text that is not empty")
    return value


def read_similar(
    raw: Mapping[str, Any], graders: Graders, loc: Loc, problems: Problems
) -> dict[str, Any]:
    """Return the parameters of a `similar`; note what is wrong with it."""
    config = raw.get("config") or {}
    for key in config:
        if key not in _SIMILAR_KEYS:
            message = f"unknown key {describe(key)}.{suggest(key, _SIMILAR_KEYS)}"
            problems.add((*loc, "config", key), message)
    try:
        threshold = _threshold(config, raw)
        if "provider" in config:
            options = {key: config[key] for key in config if key != "threshold"}
            spec = graders.inline(options, loc, problems)
        else:
            spec = graders.embedding(config, loc, problems)
    except AssertionValueError as error:
        problems.add(loc, str(error))
        return {}
    return {
        "value": str(raw["value"]),
        "threshold": _SIMILAR_THRESHOLD if threshold is None else threshold,
        "judges": [spec],
    }
