"""A workflow that is registered with the service: whole, and without files around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.formats.documents import as_json, parse_document
from evalcore.formats.test_file.input_messages import InputOrigin, read_workflow_texts
from evalcore.formats.workflow_harness.parts import read_workflow
from evalcore.problems import Problems
from evalcore.wording import describe
from evalcore.workflow.reading import behaviour_of
from evalcore.workflow.references import find_mistakes


def read_registered_workflow(written: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a workflow's definition from a mapping or from YAML text.

    Raises `LoadError` with every mistake. Blocks cannot name workflow files: there are none.
    """
    if isinstance(written, str):
        document = parse_document(written.encode("utf-8", "replace"), "definition")
        problems, raw = Problems(document.file, document.locate), document.value
    else:
        problems, raw = Problems("definition", lambda _: None), as_json(written)
    if not isinstance(raw, dict):
        problems.add((), f"a workflow is a mapping with 'blocks', got {describe(raw)}")
        problems.raise_if_any()
    if not isinstance(raw.get("blocks"), dict):
        description = f", got {describe(raw['blocks'])}" if "blocks" in raw else ""
        problems.add(("blocks",), f"expected a mapping of ids to blocks{description}")
    elif not raw["blocks"]:
        problems.add(("blocks",), "a workflow has one block at least, got none")
    read_workflow_texts(raw, InputOrigin(None, (), problems))
    workflow = read_workflow(raw, problems)
    if workflow is not None:
        for mistake in find_mistakes(workflow, with_souls=False):
            problems.add(mistake.loc, mistake.message)
        for name, block in workflow.blocks.items():
            if block.type == "workflow":
                message = "a registered workflow cannot contain another one"
                problems.add(("blocks", name, "type"), message)
    problems.raise_if_any()
    definition: dict[str, Any] = behaviour_of(as_json(raw))
    return definition
