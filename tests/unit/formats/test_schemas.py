"""The JSON Schemas of the formats: they accept what loads and reject what is misshapen."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from evalcore.formats.documents import read_document
from evalcore.formats.registry import FORMATS, json_schema
from tests.support.mistake_pages import Mistake, read_mistakes
from tests.support.suite_mutations import TEST_FILE, WORKFLOW

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(ROOT.glob("examples/*/suite.eval.yaml"))
# What a schema of one file cannot know: other files, other places of the file, other options.
BEYOND = re.compile(
    r"duplicate|unknown block|unknown target|unknown gate|gate '|a gate is|no variant|no plug-in"
    r"|asserts nothing|is given|keep one|one of 'assertions'|answers it|environment variable"
    r"|there is no file|lies outside|no file matches|not JSON|unknown mode|needs 'k'|JSON can hold"
    r"|'exclude' needs|but there are|suite level only|none is defined|64 bits|a key must be text"
    r"|: target '"
)


def format_of(value: Any) -> str:
    if "flow" in value:
        return "suite"
    if "evals" in value:
        return "workflow-evals"
    if "suites" in value:
        return "script-suite"
    tests = {"tests", "eval_cases", "evalcases"} & set(value)
    return "test-file" if tests else "workflow-harness"


def errors(value: Any) -> list[str]:
    validator = Draft202012Validator(json_schema(format_of(value)))
    return [error.message for error in validator.iter_errors(value)]


FREE = "workflow-harness"  # its files may have any key at the top


def unknown_keys(format_: str, key: str) -> list[str]:
    validator = Draft202012Validator(json_schema(format_))
    return [error.message for error in validator.iter_errors({key: 1}) if key in error.message]


def structural_mistakes() -> list[Mistake]:
    """Return those of one YAML or JSON file in which every message is about its shape."""
    found = []
    for mistake in read_mistakes():
        lines = mistake.printed.splitlines()
        one_file = len(mistake.files) == 1 and mistake.arguments[0] == "validate"
        if (
            one_file
            and mistake.page in {"workflow-harness", "test-file", "targets"}
            and len(mistake.arguments) == 2
            and not any(BEYOND.search(line) for line in lines)
        ):
            found.append(mistake)
    return found


@pytest.mark.parametrize("format_", FORMATS)
def test_a_schema_is_valid_itself(format_: str) -> None:
    Draft202012Validator.check_schema(json_schema(format_))


def test_parts_for_aliases_fit_every_schema_but_that_of_script_suites() -> None:
    fit = {format_: not unknown_keys(format_, "x-part") for format_ in FORMATS}

    assert fit == {format_: format_ != "script-suite" for format_ in FORMATS}
    assert all(unknown_keys(format_, "y-part") for format_ in FORMATS if format_ != FREE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_fit_their_schema(path: Path) -> None:
    assert errors(read_document(path).value) == []


SAVED_EVALS = {
    "workflow": {"blocks": {}},
    "evals": [
        {
            "name": "total",
            "target": {"type": "block", "block_id": "sum"},
            "source": {
                "type": "manual",
                "handle_inputs": {
                    "input-json-0": {"type": "json", "data": 1},
                    "input-document-1": {
                        "type": "file",
                        "document": {"id": "f", "filename": "a.pdf", "mime_type": "a/b"},
                    },
                },
            },
            "assertion": {
                "target": {"output_handle_id": "output-json-0", "path": "total"},
                "condition": {
                    "kind": "all_items_match",
                    "condition": {"kind": "number_compare", "op": "gt", "expected": 0},
                },
            },
        }
    ],
    "evalcore": {"name": "sums"},
}


@pytest.mark.parametrize("value", [WORKFLOW, TEST_FILE, SAVED_EVALS], ids=format_of)
def test_files_that_load_fit_their_schema(value: Any) -> None:
    assert errors(value) == []


@pytest.mark.parametrize("mistake", structural_mistakes(), ids=lambda mistake: mistake.title)
def test_misshapen_files_do_not_fit(mistake: Mistake, tmp_path: Path) -> None:
    name, content = next(iter(mistake.files.items()))
    path = tmp_path / name
    path.write_bytes(content)

    assert errors(read_document(path).value) != []


def test_there_are_examples_and_mistakes_to_try() -> None:
    assert len(EXAMPLES) >= 3
    assert len(structural_mistakes()) >= 10


@pytest.mark.parametrize(
    ("place", "written"),
    [
        (("target", "type"), "workflow"),
        (("source", "type"), "run_step"),
        (("source", "handle_inputs"), {"a": {"type": "json"}}),
        (("assertion", "condition"), {"kind": "equals"}),
        (("assertion", "condition"), {"kind": "unequal", "expected": 1}),
        (("assertion", "extra"), 1),
        (("extra",), 1),
    ],
)
def test_misshapen_saved_evals_do_not_fit(place: tuple[str, ...], written: Any) -> None:
    value = copy.deepcopy(SAVED_EVALS)
    part: Any = value["evals"][0]  # type: ignore[index]
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = written
    assert errors(value) != []
