"""Assertions in the words of workflow files → the engine's checks.

Texts are compared untrimmed, regular expressions are Python's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Required, cast

from pydantic import Field, ValidationError, with_config

from evalcore.checks.base import STRICT, AssertionValueError
from evalcore.checks.dialects import AssertionType, WorkflowKeys, assertion_types
from evalcore.checks.registry import ANY, Dialect
from evalcore.formats.assertion_files import find_plugin
from evalcore.formats.graders import Graders
from evalcore.formats.warnings import CaseWarnings, examine_assertion, note_empty
from evalcore.model.assertion import Assertion
from evalcore.problems import Problems
from evalcore.shapes import CUSTOM_TYPE, adapter
from evalcore.wording import Loc, describe, suggest, suggest_assertion

_NOT: Final = "not-"
_CUSTOM: Final = "custom:"


@with_config(STRICT)
class CustomAssertion(WorkflowKeys, total=False):
    """A plug-in from `custom/assertions/<id>.yaml`; `type` is `custom:<id>`."""

    type: Required[Annotated[str, Field(pattern=CUSTOM_TYPE)]]


def read_assertion(
    raw: object,
    loc: Loc,
    problems: Problems,
    *,
    block: str | None,
    folder: Path,
    graders: Graders | None = None,
    warnings: CaseWarnings | None = None,
) -> Assertion | None:
    """Return the assertion at `loc`; None, and every mistake noted, if it is wrong.

    `graders` know the judges, `warnings` collects what is no mistake.
    """
    before = problems.count
    if not isinstance(raw, dict):
        problems.add(loc, f"an assertion is a mapping with 'type', got {describe(raw)}")
        return None
    name = raw.get("type")
    if not isinstance(name, str):
        mistake = f"expected text, got {describe(name)}"
        problems.add((*loc, "type"), mistake if "type" in raw else _missing_type(raw))
        return None
    bare = name.removeprefix(_NOT)
    kind = assertion_types(Dialect.WORKFLOW).get(bare)
    if kind is None and not bare.startswith(_CUSTOM):
        problems.add((*loc, "type"), _unknown_type(name))
        return None
    written = _validated(raw, CustomAssertion if kind is None else kind.shape, loc, problems)
    if written is None:
        return None
    written = written if kind is None else kind.without_absent(written)
    if kind is None:
        plugin, config = bare.removeprefix(_CUSTOM), written.get("config") or {}
        check, params = "custom", find_plugin(plugin, config, folder, loc, problems)
    else:
        check, params = _read(kind, written, loc, problems, graders or Graders(folder))
    if problems.count > before:
        return None
    weight = written.get("weight")
    assertion = Assertion(
        type=name,
        check=check,
        name=_name(name, written.get("value"), params),
        params=params,
        block=block,
        weight=1.0 if weight is None else float(weight),
        required=None if kind is None else kind.required_score(written),
        negate=name.startswith(_NOT),
        transform=written.get("transform"),
        metric=written.get("metric"),
    )
    examine_assertion(assertion, written, loc, problems, warnings)
    if warnings is not None:
        note_empty(assertion, loc, problems, warnings=None if block is None else warnings)
    return assertion


def _validated(
    raw: Mapping[str, Any], shape: Any, loc: Loc, problems: Problems
) -> dict[str, Any] | None:
    try:
        return cast("dict[str, Any]", adapter(shape).validate_python(raw))
    except ValidationError as error:
        problems.add_invalid(error, raw, shape, loc)
        return None


def _read(
    kind: AssertionType, written: Mapping[str, Any], loc: Loc, problems: Problems, graders: Graders
) -> tuple[str, dict[str, Any]]:
    """Return the check's name and its fields; note what does not fit together."""
    _check_config(kind, written.get("config") or {}, loc, problems)
    try:
        return kind.read(written, graders.at(loc, problems, _no_members))
    except AssertionValueError as error:
        problems.add((*loc, *error.loc), str(error))
        return kind.check, {}


def _no_members(_raw: Sequence[Any], _loc: Loc, _problems: Problems) -> list[Assertion]:
    return []


def _check_config(
    kind: AssertionType, config: Mapping[str, Any], loc: Loc, problems: Problems
) -> None:
    """Note a key that the type does not know: its check would quietly be another one."""
    keys = kind.word.config
    for key in config if keys != ANY else ():
        if key not in keys:
            hint = suggest(key, keys) if keys else f" '{kind.name}' takes no 'config'."
            problems.add((*loc, "config", key), f"unknown key {describe(key)}.{hint}")


def _unknown_type(name: str) -> str:
    names = [*assertion_types(Dialect.WORKFLOW), "custom:<id>"]
    return f"unknown assertion {describe(name)}.{suggest_assertion(name, names)}"


def _missing_type(raw: Mapping[str, Any]) -> str:
    for key in raw:
        if key in assertion_types(Dialect.WORKFLOW):
            return f"is required; write {{type: {key}, value: …}}"
    return "is required"


def _name(name: str, value: object, params: Mapping[str, Any]) -> str:
    if isinstance(value, list):
        return f"{name}-{len(value)}"
    if isinstance(value, str | int | float):
        compared = params.get("value")
        return f"{name}-{(compared if isinstance(compared, str) else str(value))[:30]}"
    return name
