"""What is wrong with an assertion whatever the output: it cannot be applied, or it is empty.

In workflow files what is empty is a warning, because the program of those files takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from evalcore.checks.base import Check, Fault
from evalcore.checks.json import TransformError, compile_transform
from evalcore.checks.registry import find_check
from evalcore.checks.text import ECMASCRIPT_TRIMMED
from evalcore.formats.warnings import CaseWarnings
from evalcore.model.assertion import Assertion
from evalcore.problems import Problems
from evalcore.wording import Loc, path_text

if TYPE_CHECKING:
    from evalcore.checks.conditions import Condition


# Where the bounds of a check may stand, the first that is written counts.


def examine_condition(
    condition: Condition, loc: Loc, problems: Problems, warnings: CaseWarnings
) -> None:
    """Note why the condition of the saved eval at `loc` cannot be applied; warn of the rest."""
    for fault in condition.faults():
        _note(fault, (*loc, "assertion", "condition", *fault.path), problems, warnings)
    if condition.kind not in ("starts_with", "ends_with") or condition.expected_value != "":
        return
    at = (*loc, "assertion", "condition")
    path = path_text(at)
    reason = f"'{condition.kind}' can never fail on any value: its text is empty"
    several = f"{{count}} conditions ({{names}}): {reason}"
    warnings.add(f"{path}: {reason}", at, problems, name=path, several=several)


def note_empty(
    assertion: Assertion,
    loc: Loc,
    problems: Problems,
    label: str = "",
    warnings: CaseWarnings | None = None,
) -> None:
    """Note what is empty in an assertion at `loc`, and makes it pass or fail always.

    With `warnings` it is a warning.
    """
    for key, reason in _empty_parts(assertion):
        at = (*loc, key) if key else loc
        if warnings is None:
            problems.add(at, reason, label=label)
            continue
        path = path_text(at)
        several = f"{{count}} assertions ({{names}}): {reason}"
        warnings.add(f"{path}: {reason}", at, problems, name=path, several=several)


def _empty_parts(assertion: Assertion) -> Iterator[tuple[str, str]]:
    """Yield the key of each empty part, and what is wrong with it."""
    params, kind = assertion.params, assertion.type
    if assertion.check in ("contains-any", "contains-all"):
        yield from _empty_members(assertion, params["values"])
    elif (key := _TEXT_FIELDS.get(assertion.check)) is not None:
        text = params[key].strip(ECMASCRIPT_TRIMMED) if params.get("trim") else params[key]
        if text == "":
            trimmed = " after trimming" if params[key] else ""
            yield "value", f"is empty{trimmed}: {_certain(kind, passes=not assertion.negate)}"
    elif assertion.check == "field-accuracy":
        if not any(field.get("weight", 1.0) for field in params["fields"]):
            yield "fields", f"{_certain(kind, passes=False)}: no field has any weight"
    elif assertion.check == "composite" and params["aggregator"]["type"] == "mean":
        members = [Assertion(*member) for member in params["members"]]
        own = params["aggregator"].get("weights") or {}
        if members and not any(own.get(member.name, member.weight) for member in members):
            yield "", f"{_certain(kind, passes=False)}: no member has any weight"


# The fields that hold the text which every output holds if it is empty.
_TEXT_FIELDS: Final = {
    "contains": "value",
    "starts-with": "value",
    "ends-with": "value",
    "output-contains": "value",
    "regex": "pattern",
    "output-matches": "pattern",
}


def _empty_members(assertion: Assertion, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    takes_all = assertion.check == "contains-all"
    if not values:
        certain = _certain(assertion.type, passes=takes_all != assertion.negate)
        yield "value", f"is empty: {certain}"
    elif "" in values:
        is_certain = not takes_all or set(values) == {""}
        certain = f": {_certain(assertion.type, passes=not assertion.negate)}" if is_certain else ""
        yield "value", f"has an empty member, which every output contains{certain}"


def _certain(kind: str, *, passes: bool) -> str:
    return f"'{kind}' can never {'fail' if passes else 'pass'}"


def note_weightless(
    assertions: Sequence[Assertion],
    loc: Loc,
    problems: Problems,
    label: str = "",
    warnings: CaseWarnings | None = None,
) -> None:
    """Note a case at `loc` of which no assertion has any weight, so that its score is always 0.

    Assertions of one block have a score of their own. With `warnings` it is a warning.
    """
    if all(assertion.weight for assertion in assertions):
        return
    weights: dict[str | None, float] = {}
    for assertion in assertions:
        weights[assertion.block] = weights.get(assertion.block, 0.0) + assertion.weight
    if all(weights.values()):
        return
    reason = "no assertion has any weight, so the score is always 0; give one a 'weight' above 0"
    if warnings is None:
        problems.add(loc, reason, label=label)
        return
    path = path_text(loc)
    several = f"{{count}} cases ({{names}}): {reason}"
    warnings.add(f"{path}: {reason}", loc, problems, name=path, several=several)


def examine_assertion(
    assertion: Assertion,
    written: Mapping[str, Any],
    loc: Loc,
    problems: Problems,
    warnings: CaseWarnings | None,
) -> None:
    """Note why an assertion at `loc` cannot be applied to any output; warn of the rest."""
    check = find_check(assertion.check)
    if check.faults is not Check.faults:
        for fault in check.from_stored(assertion.params).faults():
            path = _written_path(fault.path, written)
            _note(fault, (*loc, *path), problems, warnings)
    if assertion.transform is not None:
        try:
            compile_transform(assertion.transform)
        except TransformError as error:
            problems.add((*loc, "transform"), str(error))


def _written_path(path: Loc, written: Mapping[str, Any]) -> Loc:
    """Return where a field's value stands: under its own name, in `config`, or as `value`."""
    field, config = path[0], written.get("config")
    if field in written or written.get("value") is None:
        return path
    in_config = isinstance(config, Mapping) and field in config
    return ("config", *path) if in_config else ("value", *path[1:])


def _note(fault: Fault, at: Loc, problems: Problems, warnings: CaseWarnings | None) -> None:
    if not fault.is_warning:
        problems.add(at, fault.message)
    elif warnings is not None:
        path = path_text(at)
        several = f"{{count}} places ({{names}}): {fault.message}"
        warnings.add(f"{path}: {fault.message}", at, problems, name=path, several=several)
