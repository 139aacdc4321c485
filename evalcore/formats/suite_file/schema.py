"""The JSON Schema of suite files."""

from __future__ import annotations

from typing import Any

from evalcore.checks.dialects import assertion_schema
from evalcore.checks.registry import Dialect
from evalcore.declared.base import camel_case
from evalcore.formats.suite_file.assertions import OTHER_TYPES
from evalcore.formats.suite_file.shapes import SuiteFile
from evalcore.shapes import adapter


def suite_file_schema() -> dict[str, Any]:
    """Return the file's schema; its own keys may be in camelCase.

    Of assertions in the words of other formats only the type is checked here.
    """
    schema = adapter(SuiteFile).json_schema()
    definitions = schema["$defs"]
    own = assertion_schema(Dialect.SUITE, definitions)
    other = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"anyOf": [{"enum": list(OTHER_TYPES)}, {"pattern": "custom:"}]}},
    }
    definitions["Assertion"] = {"anyOf": [own, other]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Assertion"}}
    for shape in (schema, definitions["SuiteCase"]):
        shape["properties"]["assertions"] = {"anyOf": [listed, {"type": "null"}]}
    for shape in (schema, *definitions.values()):
        _allow_camel_case(shape)
    schema["$defs"] = definitions
    return schema


def _allow_camel_case(shape: dict[str, Any]) -> None:
    """Let the keys of an object be written in camelCase, too."""
    properties = shape.get("properties", {})
    humps = {name: camel_case(name) for name in properties if "_" in name}
    properties |= {camel: properties[name] for name, camel in humps.items()}
    required = shape.get("required", [])
    either = [
        {"anyOf": [{"required": [name]}, {"required": [humps[name]]}]}
        for name in required
        if name in humps
    ]
    if either:
        shape["required"] = [name for name in required if name not in humps]
        shape["allOf"] = either
