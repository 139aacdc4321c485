"""Write and read files of saved evals as the service exchanges them, each eval under one name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from evalcore.formats.documents import as_json, read_document, yaml_text
from evalcore.formats.options import LoadOptions
from evalcore.formats.section import suite_name, without_section
from evalcore.formats.test_file.input_messages import InputOrigin, read_workflow_texts
from evalcore.formats.workflow_evals.loader import load_workflow_evals
from evalcore.formats.workflow_evals.shapes import FileEval
from evalcore.problems import Problems
from evalcore.shapes import adapter
from evalcore.wording import shown_path


class SavedEvalsFile(NamedTuple):
    """A file of saved evals: the workflow's name and definition, and the evals in their order."""

    name: str
    workflow: Mapping[str, Any]
    evals: tuple[FileEval, ...]


def read_saved_evals(path: Path) -> SavedEvalsFile:
    """Return what a file holds; raise `LoadError` with every mistake in it."""
    document = read_document(path, shown_path(path))
    load_workflow_evals(document, path, LoadOptions(secrets_required=False), may_be_empty=True)
    raw: Any = as_json(document.value)
    workflow, folder = raw["workflow"], path.resolve().parent
    if isinstance(workflow, str):
        file = folder / workflow
        workflow, folder = as_json(read_document(file).value), file.resolve().parent
    noted = Problems(document.file, document.locate)  # nothing: the file has been loaded
    workflow = read_workflow_texts(workflow, InputOrigin(folder, (), noted))
    named = (raw.get("evalcore") or {}).get("name"), (workflow.get("workflow") or {}).get("name")
    evals = tuple(
        adapter(FileEval).validate_python(without_section(written)) for written in raw["evals"]
    )
    return SavedEvalsFile(suite_name(path, *named), workflow, evals)


def file_of(name: str, workflow: Mapping[str, Any], evals: Sequence[FileEval]) -> dict[str, Any]:
    """Return the content of a file that `evalcore run` executes.

    Evals are called by their names. Of several with the same name the first keeps it, and the
    others are called by their ids.
    """
    content: dict[str, Any] = {"workflow": dict(workflow), "evals": []}
    if (workflow.get("workflow") or {}).get("name") != name:
        content["evalcore"] = {"name": name}
    names: set[str] = set()
    for saved in evals:
        written = eval_fields(saved)
        if saved.name in names:
            del written["name"]
        names.add(saved.name or "")
        content["evals"].append(written)
    return content


def eval_fields(saved: FileEval) -> dict[str, Any]:
    """Return an eval as a file has it: without what is null, and without the assertion's id."""
    written: dict[str, Any] = saved.model_dump(mode="json", by_alias=True)
    assertion = written["assertion"]
    del assertion["id"]
    for part, keys in ((written, ("id", "name")), (assertion, ("label",))):
        for key in keys:
            if part[key] is None:
                del part[key]
    if assertion["target"]["path"] is None:
        del assertion["target"]["path"]
    return written


def saved_evals_text(content: Mapping[str, Any], *, as_json: bool) -> str:
    """Return the text of a file, as YAML or as JSON."""
    if as_json:
        return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode() + "\n"
    return yaml_text(content)
