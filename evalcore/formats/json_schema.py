"""The JSON Schema of each format, from the shapes that the loaders validate with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from evalcore.mistakes.shape_lookup import adapter

SCHEMAS: Mapping[str, str] = {
    "workflow-harness": "Workflow file with an eval section",
    "test-file": "Test file",
    "suite": "Suite: cases × variants",
    "script-suite": "Script suite",
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(format_: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a format of `SCHEMAS`."""
    makers = {
        "workflow-harness": _workflow_file,
        "test-file": _test_file,
        "suite": _suite_file,
        "script-suite": _script_suite,
    }
    return {"$schema": _DIALECT, "title": SCHEMAS[format_], **makers[format_]()}


def _test_file() -> dict[str, Any]:
    from evalcore.formats.test_file.shapes import TestFile

    return adapter(TestFile).json_schema()


def _script_suite() -> dict[str, Any]:
    from evalcore.formats.script_suite.schema import script_suite_schema

    return script_suite_schema()


def _workflow_file() -> dict[str, Any]:
    """Return the file's schema with the assertions that the loader checks one by one put in."""
    from evalcore.formats.workflow_harness.shapes import (
        AssertionShape,
        CustomAssertion,
        WorkflowFile,
    )

    schema = adapter(WorkflowFile).json_schema()
    block = _blocks()
    assertion = adapter(AssertionShape).json_schema()
    custom = adapter(CustomAssertion).json_schema()
    definitions = schema["$defs"]
    for part in (block, assertion, custom):
        definitions |= part.pop("$defs", {})
    definitions["Block"] = block
    definitions["Assertion"] = {"anyOf": [assertion, custom]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Assertion"}}
    definitions["EvalCase"]["properties"]["expected"] = {
        "description": "Assertions by block id.",
        "anyOf": [{"type": "object", "additionalProperties": listed}, {"type": "null"}],
    }
    schema["properties"]["blocks"] = {
        "anyOf": [
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/Block"}},
            {"type": "null"},
        ]
    }
    schema["$defs"] = definitions
    return schema


def _blocks() -> dict[str, Any]:
    """Return the schema of a block; what only a block that runs needs is not required."""
    from functools import reduce
    from operator import or_

    from pydantic import Field

    from evalcore.workflow.blocks.registry import BLOCK_TYPES, block_class

    shape: Any = reduce(or_, map(block_class, BLOCK_TYPES))
    schema = adapter(Annotated[shape, Field(discriminator="type")]).json_schema()
    for name in BLOCK_TYPES.values():
        schema["$defs"][name]["required"] = ["type"]
    return schema


def _suite_file() -> dict[str, Any]:
    """Return the file's schema; its own keys may be in camelCase.

    Of assertions in the words of other formats only the type is checked here.
    """
    from evalcore.formats.suite_file.assertions import OTHER_TYPES
    from evalcore.formats.suite_file.shapes import AssertionShape, SuiteFile

    schema = adapter(SuiteFile).json_schema()
    own = adapter(AssertionShape).json_schema()
    definitions = schema["$defs"] | own.pop("$defs")
    other = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"anyOf": [{"enum": list(OTHER_TYPES)}, {"pattern": "custom:"}]}},
    }
    definitions["Assertion"] = {"anyOf": [own, other]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Assertion"}}
    definitions["SuiteCase"]["properties"]["assertions"] = {"anyOf": [listed, {"type": "null"}]}
    for shape in (schema, *definitions.values()):
        _allow_camel_case(shape)
    schema["$defs"] = definitions
    return schema


def _allow_camel_case(shape: dict[str, Any]) -> None:
    """Let the keys of an object be written in camelCase, too."""
    properties = shape.get("properties", {})
    humps = {name: _camel_case(name) for name in properties if "_" in name}
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


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
