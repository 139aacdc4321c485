"""The JSON Schema of workflow files with an `eval:` section."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from evalcore.checks.dialects import assertion_schema
from evalcore.checks.registry import Dialect
from evalcore.datasets.reference import SCHEME
from evalcore.formats.workflow_harness.assertions import CustomAssertion
from evalcore.formats.workflow_harness.shapes import WorkflowFile
from evalcore.shapes import adapter
from evalcore.workflow.reading import BLOCK_TYPES, block_class


def workflow_file_schema() -> dict[str, Any]:
    """Return the file's schema with the assertions that the loader checks one by one put in."""
    schema = adapter(WorkflowFile).json_schema()
    block = _blocks()
    custom = adapter(CustomAssertion).json_schema()
    definitions = schema["$defs"]
    for part in (block, custom):
        definitions |= part.pop("$defs", {})
    definitions["Block"] = block
    assertion = assertion_schema(Dialect.WORKFLOW, definitions)
    definitions["Assertion"] = {"anyOf": [assertion, custom]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Assertion"}}
    definitions["EvalCase"]["properties"]["expected"] = {
        "description": "Assertions by block id.",
        "anyOf": [{"type": "object", "additionalProperties": listed}, {"type": "null"}],
    }
    cases = definitions["EvalSection"]["properties"]
    cases["cases"] = {"anyOf": [cases["cases"], {"type": "string", "pattern": f"^{SCHEME}"}]}
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
    classes = [block_class(name) for name in BLOCK_TYPES]
    shape: Any = reduce(or_, classes)
    schema = adapter(Annotated[shape, Field(discriminator="type")]).json_schema()
    for block in classes:
        schema["$defs"][block.__name__]["required"] = ["type"]
    return schema
