"""The JSON Schema of script suites, from the tables of keys that the loader checks with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from evalcore.formats.parts.shared_shapes import EvalcoreSection
from evalcore.formats.script_suite.loader import FLAT_KEYS, KEYS, SUITE_KEYS
from evalcore.mistakes.shape_lookup import adapter
from evalcore.scripts.program import TEST_KEYS
from evalcore.scripts.statements import KEYS as STATEMENTS

_ANY: Final[dict[str, Any]] = {}
_TEXT: Final = {"type": "string", "minLength": 1}
_BODY: Final = {"$ref": "#/$defs/Body"}
_TOOLS: Final = {"type": "array", "items": {"$ref": "#/$defs/Tool"}}
_DATA: Final = {"type": "object"}


def script_suite_schema() -> dict[str, Any]:
    """Return the schema of a suite file, with suites or without."""
    section = adapter(EvalcoreSection).json_schema()
    definitions = section.pop("$defs", {})
    definitions |= {
        "Evalcore": section,
        "Level": _object({"data": _DATA, "tools": _TOOLS}),
        "Tests": {"type": "object", "additionalProperties": _test()},
        "Suite": _object({"data": _DATA, "tools": _TOOLS, "tests": _ref("Tests")}, SUITE_KEYS),
        "Body": {"anyOf": [_ref("Statement"), {"type": "array", "items": _ref("Statement")}]},
        "Statement": {"oneOf": [_statement(kind) for kind in STATEMENTS]},
        "Matcher": _object({"case": _ANY, "pattern": _TEXT, "then": _BODY}, required=("then",)),
        "Tool": {"type": "object", "description": "import_tool, or name and do."},
    }
    parts = {
        "shared": _ref("Level"),
        "iterations": {"type": "integer", "minimum": 1},
        "suites": {"type": "object", "additionalProperties": _ref("Suite")},
        "tests": _ref("Tests"),
        "evalcore": _ref("Evalcore"),
    }
    forms = [_object(parts, keys, required=(keys[2],)) for keys in (KEYS, FLAT_KEYS)]
    return {"anyOf": forms, "$defs": definitions}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _object(
    properties: dict[str, Any], keys: Iterable[str] | None = None, required: Iterable[str] = ()
) -> dict[str, Any]:
    wanted = tuple(properties if keys is None else keys)
    return {
        "type": "object",
        "properties": {key: properties[key] for key in wanted},
        "required": list(required),
        "additionalProperties": False,
    }


def _test() -> dict[str, Any]:
    parts = {"data": _DATA, "tools": _TOOLS, "do": _BODY}
    return _object(parts, TEST_KEYS, required=("do",))


def _statement(kind: str) -> dict[str, Any]:
    names = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
    fields = {
        "eval": _ANY,
        "call": _TEXT,
        "if": _ANY,
        "for_each": _ANY,
        "match": _ANY,
        "starlark": {"type": "string"},
        "params": {"type": ["object", "string", "null"]},
        "catch": names,
        "ui_hint": _ANY,
        "then": _BODY,
        "else": {"anyOf": [_BODY, {"type": "null"}]},
        "do": _BODY,
        "default": {"anyOf": [_BODY, {"type": "null"}]},
        "parallelism": {"type": "integer", "minimum": 0},
        "trim": {"type": "boolean"},
        "matchers": {"type": "array", "items": _ref("Matcher")},
        "store_as": _TEXT,
    }
    needed = {"if": ("then",), "for_each": ("do",), "match": ("matchers",)}
    return _object(fields, (kind, *STATEMENTS[kind]), required=(kind, *needed.get(kind, ())))
