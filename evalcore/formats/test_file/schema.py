"""The JSON Schema of test files."""

from __future__ import annotations

from typing import Any

from evalcore.checks.dialects import assertion_schema
from evalcore.checks.registry import Dialect
from evalcore.formats.test_file.shapes import TestFile
from evalcore.shapes import adapter


def test_file_schema() -> dict[str, Any]:
    """Return the schema of a whole test file."""
    schema = adapter(TestFile).json_schema()
    definitions = schema["$defs"]
    definitions["Assertion"] = assertion_schema(Dialect.TEST, definitions)
    text = {"type": "string", "minLength": 1}
    include = {
        "type": "object",
        "properties": {"include": text},
        "required": ["include"],
        "additionalProperties": False,
    }
    items = {"anyOf": [{"$ref": "#/$defs/Assertion"}, text, include]}
    listed = {"type": "array", "items": items}
    parts = [
        definitions[name] for name in ("SuiteExecution", "TestAlias", "TestExecution", "TurnAlias")
    ]
    for shape in (schema, *parts):
        for key in {"assert", "assertions", "evaluators"} & shape["properties"].keys():
            shape["properties"][key] = listed
    return schema
