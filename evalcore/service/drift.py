"""Drift and freshness of a saved eval, computed against the current draft when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from evalcore.checks.conditions import Condition
from evalcore.jsonvalues import Part, Wildcard, parse_path
from evalcore.service.fingerprints import schema_fingerprint

SchemaDrift = Literal["none", "partial", "drifted", "unknown"]
AssertionDrift = Literal["valid", "drifted", "broken"]
DriftStatus = Literal["none", "drifted", "broken", "unknown"]
Reason = Literal["validity_changed", "inputs_changed", "engine_changed", "metrics_engine_changed"]

_TEXT: Final = frozenset({"string"})
_NUMBERS: Final = frozenset({"number", "integer"})
_LISTS: Final = frozenset({"array"})
_OBJECTS: Final = frozenset({"object"})
# The types of values that a condition can be evaluated on; a kind that is not here takes all.
_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "contains": _TEXT | _LISTS,
    "not_contains": _TEXT | _LISTS,
    "number_compare": _NUMBERS,
    "between": _NUMBERS,
    "starts_with": _TEXT,
    "ends_with": _TEXT,
    "matches_regex": _TEXT,
    "object_contains": _OBJECTS,
    "array_contains": _LISTS,
    "length_compare": _TEXT | _LISTS | _OBJECTS,
    "all_items_match": _LISTS,
    "any_item_matches": _LISTS,
    "similarity_gte": _TEXT,
    "split_iou_gte": _OBJECTS | _LISTS,
}
_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_REASONS: Final[Mapping[str, Reason]] = {
    "workflow": "validity_changed",
    "block": "validity_changed",
    "assertion": "validity_changed",
    "inputs": "inputs_changed",
    "engine": "engine_changed",
    "metrics_engine": "metrics_engine_changed",
}


@dataclass(frozen=True, slots=True)
class SchemaDriftReading:
    """Whether the target of an assertion still resolves, and whether it is still usable."""

    schema: SchemaDrift
    assertion: AssertionDrift

    @property
    def status(self) -> DriftStatus:
        """The worse of both: broken, drifted, unknown, none in this order."""
        if self.assertion == "broken":
            return "broken"
        if self.assertion == "drifted" or self.schema in {"partial", "drifted"}:
            return "drifted"
        return "unknown" if self.schema == "unknown" else "none"


UNCHANGED: Final = SchemaDriftReading("none", "valid")


def subtree_fingerprint(schema: Mapping[str, Any] | None, path: str | None) -> str | None:
    """Return the fingerprint of the part of a schema that a path addresses; None without one."""
    if schema is None:
        return None
    subtree, _ = schema_at(schema, path)
    return _subtree_fingerprint(subtree, schema)


def _subtree_fingerprint(subtree: Any, root: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of a part of a schema with the definitions that it refers to."""
    if subtree is None:
        return None
    referenced = {} if subtree is root else _referenced(subtree, root)
    if not referenced:
        return schema_fingerprint(subtree)
    return schema_fingerprint({"allOf": [subtree], "$defs": referenced})


def _referenced(subtree: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the local references of a part lead to, each once, also through others."""
    referenced: dict[str, Any] = {}
    waiting = [subtree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, Mapping):
            waiting.extend(part.values())
            reference = part.get("$ref")
            if isinstance(reference, str) and reference not in referenced:
                referenced[reference] = _pointed(reference, root)
                waiting.append(referenced[reference])
    return referenced


def read_drift(
    handles: Mapping[str, Mapping[str, Any] | None] | None,
    handle_id: str,
    path: str | None,
    condition: Condition,
    saved: str | None,
) -> SchemaDriftReading:
    """Return the drift of an assertion.

    `handles` are the schemas of the block's output handles in the draft, None where nothing
    declares one, and None as a whole if there is no such block. `saved` is the fingerprint of the
    subtree when the eval was saved.
    """
    if handles is None:
        return SchemaDriftReading("unknown", "broken")
    if handle_id not in handles:
        return SchemaDriftReading("drifted", "broken")
    schema = handles[handle_id]
    if schema is None:
        return SchemaDriftReading("unknown", "valid")
    subtree, resolves = schema_at(schema, path)
    if not resolves:
        usable: AssertionDrift = "valid" if condition.kind == "not_exists" else "broken"
        first, *_ = parse_path(path or "")
        _, begins = _below(schema, first, schema)
        return SchemaDriftReading("partial" if begins else "drifted", usable)
    if saved == _subtree_fingerprint(subtree, schema):
        return UNCHANGED
    types = None if subtree is None else schema_types(subtree, schema)
    spread = path is not None and Wildcard.ALL in parse_path(path)
    if types is not None and not _accepts(condition, types, spread=spread):
        return SchemaDriftReading("drifted", "drifted")
    return SchemaDriftReading("partial", "drifted")


def _accepts(condition: Condition, types: frozenset[str], *, spread: bool) -> bool:
    """Whether a condition can be evaluated on one of these types.

    `spread`: a wildcard gives a list of values of these types.
    """
    if spread:
        nested = getattr(condition, "condition", None)
        if nested is not None:
            return _accepts(nested, types, spread=False)
        types = _LISTS
    accepted = _TYPES.get(condition.kind)
    return accepted is None or not types.isdisjoint(accepted)


def freshness_reasons(latest: Mapping[str, str], current: Mapping[str, str]) -> list[Reason]:
    """Return why the latest result no longer speaks of the draft, each reason once."""
    changed = (key for key in _REASONS if latest.get(key) != current.get(key))
    return list(dict.fromkeys(_REASONS[key] for key in changed))


def schema_at(schema: Mapping[str, Any], path: str | None) -> tuple[Any, bool]:
    """Return the part of a schema at a path, and whether the path resolves.

    None with True: the path leads into a part that the schema does not describe.
    """
    subtree: Any = schema
    for part in () if path is None else parse_path(path):
        subtree, resolves = _below(subtree, part, schema)
        if not resolves:
            return None, False
        if subtree is None or subtree is True or subtree == {}:
            return None, True
    return subtree, True


def _below(subtree: Any, part: Part, root: Mapping[str, Any]) -> tuple[Any, bool]:
    subtree = _dereferenced(subtree, root)
    if not isinstance(subtree, Mapping):
        return None, subtree is True
    for union in _UNIONS:
        for member in subtree.get(union) or ():
            below, resolves = _below(member, part, root)
            if resolves and below is not None:
                return below, True
    properties = subtree.get("properties")
    if isinstance(properties, Mapping) and str(part) in properties:
        return properties[str(part)], True
    is_index = not isinstance(part, str) or part.isdigit()
    if is_index and ("items" in subtree or "array" in (schema_types(subtree, root) or ())):
        return subtree.get("items"), True
    more = subtree.get("additionalProperties")
    if isinstance(more, Mapping):
        return more, True
    return None, "properties" not in subtree and _is_open(subtree, root)


def _is_open(subtree: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether a schema without properties may hold any key."""
    types = schema_types(subtree, root)
    return types is None or "object" in types


def _dereferenced(subtree: Any, root: Mapping[str, Any]) -> Any:
    """Return what a local `$ref` names; a schema without one as it is."""
    for _ in range(20):
        if not isinstance(subtree, Mapping) or not isinstance(subtree.get("$ref"), str):
            return subtree
        subtree = _pointed(subtree["$ref"], root)
    return None


def _pointed(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a local reference names in the whole schema; None if there is nothing."""
    target: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        if key and isinstance(target, Mapping):
            target = target.get(key.replace("~1", "/").replace("~0", "~"))
    return target


def schema_types(subtree: Any, root: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the JSON types that a schema allows; None if it does not say."""
    subtree = _dereferenced(subtree, root)
    if not isinstance(subtree, Mapping):
        return None
    named = subtree.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(map(str, named))
    members = [
        schema_types(member, root)
        for key in ("anyOf", "oneOf")
        for member in subtree.get(key) or ()
    ]
    member_types = [member for member in members if member is not None]
    return (
        frozenset().union(*member_types)
        if member_types and len(member_types) == len(members)
        else None
    )
