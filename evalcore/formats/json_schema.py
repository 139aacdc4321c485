"""The JSON Schema of each format, from the shapes that the loaders validate with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.formats.shapes import adapter

SCHEMAS: Mapping[str, str] = {
    "workflow-harness": "Workflow file with an eval section",
    "test-file": "Test file",
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(format_: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a format of `SCHEMAS`."""
    schema = _test_file() if format_ == "test-file" else _workflow_file()
    return {"$schema": _DIALECT, "title": SCHEMAS[format_], **schema}


def _test_file() -> dict[str, Any]:
    from evalcore.formats.test_file_shapes import TestFile

    return adapter(TestFile).json_schema()


def _workflow_file() -> dict[str, Any]:
    """Return the file's schema with the assertions that the loader checks one by one put in."""
    from evalcore.formats.workflow_harness_shapes import (
        AssertionShape,
        CustomAssertion,
        WorkflowFile,
    )

    schema = adapter(WorkflowFile).json_schema()
    assertion = adapter(AssertionShape).json_schema()
    custom = adapter(CustomAssertion).json_schema()
    definitions = schema["$defs"] | assertion.pop("$defs") | custom.pop("$defs", {})
    definitions["Assertion"] = {"anyOf": [assertion, custom]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Assertion"}}
    definitions["EvalCase"]["properties"]["expected"] = {
        "description": "Assertions by block id.",
        "anyOf": [{"type": "object", "additionalProperties": listed}, {"type": "null"}],
    }
    schema["$defs"] = definitions
    return schema
