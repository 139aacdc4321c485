"""The table of the formats' JSON Schemas, which are made of the shapes that the loaders check."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple


class SchemaRow(NamedTuple):
    """The title of a format's schema, and the module and function that make it."""

    title: str
    module: str
    function: str


SCHEMAS: Mapping[str, SchemaRow] = {
    "workflow-harness": SchemaRow(
        "Workflow file with an eval section",
        "evalcore.formats.workflow_harness.schema",
        "workflow_file_schema",
    ),
    "test-file": SchemaRow("Test file", "evalcore.formats.test_file.schema", "test_file_schema"),
    "suite": SchemaRow(
        "Suite: cases × variants", "evalcore.formats.suite_file.schema", "suite_file_schema"
    ),
    "script-suite": SchemaRow(
        "Script suite", "evalcore.formats.script_suite.schema", "script_suite_schema"
    ),
    "workflow-evals": SchemaRow(
        "Saved evals of a workflow",
        "evalcore.formats.workflow_evals.schema",
        "workflow_evals_schema",
    ),
}
SCHEMA_KEY: Final = "$schema"
"""The key by which editors find the schema of a file; it has no effect."""
NOTE: Final = "x-"
"""What keys at the top of a file begin with that hold parts for YAML's aliases."""
_STRICT: Final = frozenset({"script-suite"})
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(format_: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a format of `SCHEMAS`."""
    row = SCHEMAS[format_]
    schema = getattr(import_module(row.module), row.function)()
    if format_ not in _STRICT and "properties" in schema:
        schema["properties"] = {SCHEMA_KEY: {"type": "string"}, **schema["properties"]}
        schema["patternProperties"] = {f"^{NOTE}": True}
    return {"$schema": _DIALECT, "title": row.title, **schema}


def without_notes(format_: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file without the keys that have no effect: `$schema`, and parts below `x-…`.

    A script suite has no parts: each key that it does not know is a mistake.
    """
    is_strict = format_ in _STRICT
    return {
        key: value
        for key, value in document.items()
        if key != SCHEMA_KEY and (is_strict or not (isinstance(key, str) and key.startswith(NOTE)))
    }
