"""The JSON Schema of script suites, from the classes that the loader reads into."""

from __future__ import annotations

from typing import Any, Final

from evalcore.declared.base import Declared
from evalcore.formats.script_suite.shapes import (
    FlatFile,
    GroupedFile,
    ScriptSection,
    ScriptTestSection,
    TestGroup,
)
from evalcore.scripts.program import LevelShape, ScriptTest
from evalcore.scripts.statements import STATEMENTS, Matcher
from evalcore.shapes import adapter

_TEXT: Final = {"type": "string", "minLength": 1}
_FORMS: Final[dict[str, dict[str, Any]]] = {
    "tree": {},
    "params": {"type": ["object", "string", "null"]},
    "pattern": _TEXT,
    "body": {"$ref": "#/$defs/Body"},
    "matchers": {"type": "array", "items": {"$ref": "#/$defs/Matcher"}},
    "data": {"type": "object"},
    "tools": {"type": "array", "items": {"$ref": "#/$defs/Tool"}},
    "level": {"$ref": "#/$defs/Level"},
    "tests": {"$ref": "#/$defs/Tests"},
    "suites": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Suite"}},
    "evalcore": {"$ref": "#/$defs/Evalcore"},
}


def script_suite_schema() -> dict[str, Any]:
    """Return the schema of a suite file, with suites or without."""
    section = adapter(ScriptSection).json_schema()
    test_section = adapter(ScriptTestSection).json_schema()
    definitions = {**test_section.pop("$defs", {}), **section.pop("$defs", {})}
    test = _schema(ScriptTest)
    test["properties"]["evalcore"] = {"$ref": "#/$defs/TestEvalcore"}
    body = [{"$ref": "#/$defs/Statement"}]
    definitions |= {
        "Evalcore": section,
        "TestEvalcore": test_section,
        "Level": _schema(LevelShape),
        "Tests": {"type": "object", "additionalProperties": test},
        "Suite": _schema(TestGroup),
        "Body": {"anyOf": [*body, {"type": "array", "items": body[0]}]},
        "Statement": {"oneOf": [_schema(statement) for statement in STATEMENTS.values()]},
        "Matcher": _schema(Matcher),
        "Tool": {"type": "object", "description": "import_tool, or name and do."},
    }
    return {"anyOf": [_schema(GroupedFile), _schema(FlatFile)], "$defs": definitions}


def _schema(shape: type[Declared]) -> dict[str, Any]:
    """Return the schema of a class, its compiled fields as their forms."""
    schema = adapter(shape).json_schema()
    for name, member in schema["properties"].items():
        if "form" in member:
            form = _FORMS[member["form"]]
            nullable = member["skips_null"] and member["form"] != "params"
            schema["properties"][name] = {"anyOf": [form, {"type": "null"}]} if nullable else form
    return schema
