"""The files that `evalcore init` writes: a suite of each format that runs without a key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from evalcore.model.suite import Format

PYTHON: Final = "python"
_TEMPLATES: Final = Path(__file__).parent / "starters"
_SUITE: Final = "<name>.eval.yaml"


class Starter(NamedTuple):
    """What a suite of a format evaluates; its templates by the names of the files made of them.

    The first file is the suite. `schema` says whether a JSON Schema stands beside it.
    """

    about: str
    files: Mapping[str, str]
    schema: bool = True


STARTERS: Final[Mapping[str, Starter]] = {
    Format.TEST_FILE: Starter(
        "answers of a model, a program or a Python function to a list of questions",
        {_SUITE: "suite.eval.yaml", "<module>_target.py": "target.py.txt"},
    ),
    Format.SUITE: Starter(
        "variants of a Python workflow, compared case by case",
        {_SUITE: "suite.eval.yaml", "<module>_flow.py": "flow.py.txt"},
    ),
    PYTHON: Starter(
        "the same, the suite itself written in Python",
        {"<module>.py": "suite.py.txt", "<module>_flow.py": "flow.py.txt"},
        schema=False,
    ),
    Format.WORKFLOW_HARNESS: Starter(
        "a workflow file, its blocks run by the engine", {_SUITE: "suite.eval.yaml"}
    ),
    Format.SCRIPT_SUITE: Starter("statements that compute a score", {_SUITE: "suite.eval.yaml"}),
    Format.WORKFLOW_EVALS: Starter(
        "single blocks of a workflow with saved inputs", {_SUITE: "suite.eval.yaml"}
    ),
}
"""The formats in the order in which `evalcore init` offers them."""


def starter_files(format_: str, name: str) -> dict[str, bytes]:
    """Return the files of a starter by their names; the first is the suite."""
    starter = STARTERS[format_]
    fields = {"<name>": name, "<module>": name.replace("-", "_")}
    files = {
        _filled(file, fields): _filled(
            (_TEMPLATES / format_ / template).read_text("utf-8"), fields
        ).encode()
        for file, template in starter.files.items()
    }
    if starter.schema:
        from evalcore.formats.registry import json_schema

        schema = orjson.dumps(json_schema(format_), option=orjson.OPT_INDENT_2)
        files[f"{format_}.schema.json"] = schema + b"\n"
    return files


def _filled(text: str, fields: Mapping[str, str]) -> str:
    for field, value in fields.items():
        text = text.replace(field, value)
    return text
