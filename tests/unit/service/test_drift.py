"""Drift of saved evals against the schema of the current draft."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.checks.conditions import CONDITION
from evalcore.service.drift import (
    freshness_reasons,
    read_drift,
    schema_at,
    subtree_fingerprint,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "total": {"type": "number"},
        "vendor": {"$ref": "#/$defs/vendor"},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number"}}},
        },
        "any": {},
    },
    "$defs": {"vendor": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def with_property(name: str, schema: Any) -> dict[str, Any]:
    properties = {**SCHEMA["properties"], name: schema}
    if schema is None:
        del properties[name]
    return {**SCHEMA, "properties": properties}


def total(schema: Any) -> dict[str, Any]:
    return {"h": with_property("total", schema)}


@pytest.mark.parametrize(
    ("path", "subtree"),
    [
        ("total", {"type": "number"}),
        ("vendor.name", {"type": "string"}),
        ("items[0].price", {"type": "number"}),
        ("items.*.price", {"type": "number"}),
        ("any.thing", None),
    ],
)
def test_a_path_addresses_a_part_of_a_schema(path: str, subtree: Any) -> None:
    assert schema_at(SCHEMA, path) == (subtree, True)


@pytest.mark.parametrize("path", ["missing", "total.amount", "vendor.phone", "items[0].name"])
def test_a_path_that_no_property_answers_does_not_resolve(path: str) -> None:
    assert schema_at(SCHEMA, path) == (None, False)


@pytest.mark.parametrize(
    ("handles", "path", "expected"),
    [
        ({"h": SCHEMA}, "total", ("none", "valid", "none")),
        (
            {"h": with_property("total", {"type": "number", "title": "Sum"})},
            "total",
            ("none", "valid", "none"),
        ),
        (
            {"h": with_property("total", {"type": "number", "minimum": 0})},
            "total",
            ("partial", "drifted", "drifted"),
        ),
        (
            {"h": with_property("total", {"type": "string"})},
            "total",
            ("drifted", "drifted", "drifted"),
        ),
        ({"h": with_property("total", None)}, "total", ("drifted", "broken", "broken")),
        ({"h": SCHEMA}, "vendor.gone", ("partial", "broken", "broken")),
        ({"h": SCHEMA}, "gone.name", ("drifted", "broken", "broken")),
        ({"other": SCHEMA}, "total", ("drifted", "broken", "broken")),
        ({"h": None}, "total", ("unknown", "valid", "unknown")),
        (None, "total", ("unknown", "broken", "broken")),
    ],
)
def test_drift_tells_what_became_of_the_target(
    handles: Any, path: str, expected: tuple[str, str, str]
) -> None:
    condition = CONDITION.validate_python({"kind": "number_compare", "op": "gt", "expected": 1})
    drift = read_drift(handles, "h", path, condition, subtree_fingerprint(SCHEMA, path))
    assert (drift.schema, drift.assertion, drift.status) == expected


def with_vendor(schema: Any) -> dict[str, Any]:
    definitions = {"vendor": {"$ref": "#/$defs/company"}, "company": schema}
    return {"h": {**SCHEMA, "$defs": definitions}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "title": "Company"}, ("none", "valid", "none")),
        ({"type": "object", "required": ["name"]}, ("partial", "drifted", "drifted")),
        ({"type": "string"}, ("drifted", "drifted", "drifted")),
    ],
    ids=["only a title", "another schema", "another type"],
)
def test_a_part_changes_with_the_definitions_that_it_refers_to(
    schema: Any, expected: tuple[str, str, str]
) -> None:
    condition = CONDITION.validate_python({"kind": "object_contains", "expected": {"name": "Acme"}})
    before = with_vendor({"type": "object"})["h"]
    for path in ("vendor", '["vendor"]'):
        drift = read_drift(
            with_vendor(schema), "h", path, condition, subtree_fingerprint(before, path)
        )
        assert (drift.schema, drift.assertion, drift.status) == expected


def test_a_result_is_stale_for_each_reason_once() -> None:
    latest = {"inputs": "1", "workflow": "1", "block": "1", "assertion": "1", "engine": "1"}
    current = {**latest, "workflow": "2", "block": "2", "engine": "2"}
    assert freshness_reasons(latest, current) == ["validity_changed", "engine_changed"]
    assert freshness_reasons(latest, latest) == []


def prices(schema: Any) -> dict[str, Any]:
    element = {"type": "object", "properties": {"price": schema}}
    return {"h": with_property("items", {"type": "array", "items": element})}


POSITIVE = {"kind": "number_compare", "op": "gt", "expected": 0}


@pytest.mark.parametrize(
    ("condition", "schema", "drift"),
    [
        ({"kind": "all_items_match", "condition": POSITIVE}, {"type": "number"}, "none"),
        (
            {"kind": "all_items_match", "condition": POSITIVE},
            {"type": "number", "minimum": 0},
            "partial",
        ),
        ({"kind": "all_items_match", "condition": POSITIVE}, {"type": "string"}, "drifted"),
        ({"kind": "any_item_matches", "condition": POSITIVE}, {"type": "integer"}, "partial"),
        ({"kind": "length_compare", "op": "gt", "expected": 0}, {"type": "string"}, "partial"),
        ({"kind": "array_contains", "expected": 1}, {"type": "integer"}, "partial"),
        (POSITIVE, {"type": "integer"}, "drifted"),
    ],
    ids=str,
)
def test_a_wildcard_addresses_a_list(condition: Any, schema: Any, drift: str) -> None:
    parsed = CONDITION.validate_python(condition)
    path = "items[*].price"
    saved = subtree_fingerprint(SCHEMA, path)
    assert read_drift(prices(schema), "h", path, parsed, saved).schema == drift
