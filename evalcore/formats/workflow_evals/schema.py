"""The JSON Schema of files of saved evals."""

from __future__ import annotations

from typing import Any

from evalcore.formats.workflow_evals.shapes import FileEval, OwnSection, WorkflowEvalsFile
from evalcore.shapes import adapter


def workflow_evals_schema() -> dict[str, Any]:
    """Return the file's schema."""
    schema = adapter(WorkflowEvalsFile).json_schema()
    saved = adapter(FileEval).json_schema(ref_template="#/$defs/{model}")
    own = adapter(OwnSection).json_schema(ref_template="#/$defs/{model}")
    saved["properties"]["evalcore"] = {"$ref": "#/$defs/OwnSection"}
    definitions = {
        **schema.get("$defs", {}),
        **saved.pop("$defs", {}),
        **own.pop("$defs", {}),
        "FileEval": saved,
        "OwnSection": own,
    }
    schema["properties"]["evals"]["items"] = {"$ref": "#/$defs/FileEval"}
    return {**schema, "required": ["workflow", "evals"], "$defs": definitions}
