"""What every format's suites name as code is digested in the plan."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from evalcore.formats.registry import load_suite
from evalcore.model.suite import SuiteDefinition
from evalcore.pipeline.plan import plan_run
from evalcore.planning.expand import Expander, WorkItem
from evalcore.planning.spool import decode_part
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import open_run

PASSING = {"type": "contains", "value": "x"}
FILES = {
    "program.py": "import shared\n",
    "module.py": "import shared\ndef function(*_, **__):\n    return True\n",
    "shared.py": "",
    "picture.png": "data",
    "prompt.md": "Is it good?",
    "inner.yaml": (
        "{workflow: {name: inner, entry: one}, blocks: {one: {type: code, "
        "code: \"def main(data):\\n    return 'x'\"}}}"
    ),
    "words.yaml": "word: x",
    "script.yaml": "{mcp: {own: {command: python, args: [program.py]}}}",
    "custom/assertions/own.yaml": (
        "{version: 1, id: own, kind: assertion, returns: bool, source: own.py}"
    ),
    "custom/assertions/own.py": "def get_assert(output, context):\n    return True\n",
}


def asserted(**more: Any) -> dict[str, Any]:
    test = {"id": "t", "input": "x", "assertions": [PASSING], **more.pop("test", {})}
    return {
        "targets": [{"name": "own", "provider": "mock", "response": "x"}],
        "execution": {"target": "own"},
        **more,
        "tests": [test],
    }


def target(**options: Any) -> dict[str, Any]:
    return asserted(targets=[{"name": "own", **options}])


def harness(block: dict[str, Any], *assertions: dict[str, Any]) -> dict[str, Any]:
    expected = {"say": list(assertions) or [PASSING]}
    return {
        "workflow": {"name": "w", "entry": "say"},
        "blocks": {"say": block},
        "eval": {"cases": [{"id": "t", "inputs": {"a": "b"}, "expected": expected}]},
    }


CODE_BLOCK = {"type": "code", "code": "def main(data):\n    return 'x'"}
COMMAND = ["python", "program.py"]
GRADER = {"type": "code-grader", "command": COMMAND}

# Each with the file that is changed, and which of the keys changes with it.
SUITES: dict[str, tuple[Any, str, str]] = {
    "a Python target": (target(provider="python", callable="module:function"), "shared.py", "exec"),
    "a command": (target(provider="command", command=COMMAND), "shared.py", "exec"),
    "a hook": (
        asserted(workspace={"hooks": {"before_each": {"command": COMMAND}}}),
        "shared.py",
        "exec",
    ),
    "an attached file": (
        asserted(
            test={
                "input": [
                    {"role": "user", "content": [{"type": "file", "value": "picture.png"}]},
                ]
            }
        ),
        "picture.png",
        "exec",
    ),
    "a code-grader": (asserted(test={"assertions": [GRADER]}), "shared.py", "grade"),
    "a plug-in": (
        harness(CODE_BLOCK, {"type": "custom:own"}),
        "custom/assertions/own.py",
        "grade",
    ),
    "a code block": (
        harness({"type": "code", "callable": "module:function"}),
        "shared.py",
        "exec",
    ),
    "a judge's prompt": (
        asserted(
            targets=[
                {
                    "name": "own",
                    "provider": "mock",
                    "response": "x",
                    "grader_target": "own",
                }
            ],
            test={"assertions": [{"type": "llm-grader", "prompt": "prompt.md"}]},
        ),
        "prompt.md",
        "grade",
    ),
    "another workflow": (
        harness({"type": "workflow", "workflow_ref": "inner.yaml"}),
        "inner.yaml",
        "exec",
    ),
    "an included file": ("script", "words.yaml", "exec"),
    "a server of a script": (
        {"suites": {"s": {"tests": {"t": {"do": [{"eval": "1.0"}]}}}}},
        "shared.py",
        "exec",
    ),
}


INCLUDING = """
suites:
  s:
    data: !include words.yaml
    tests: {t: {do: [{eval: word}]}}
"""


def plan(folder: Path, number: int) -> list[WorkItem]:
    """Return the items of a new run, as a worker elsewhere makes them from the store."""
    path = folder / "suite.eval.yaml"
    script = str(folder / "script.yaml") if "suites" in path.read_text() else None
    suite = load_suite(path, script=script)
    store = LocalStore(folder / f"store{number}")
    run = plan_run(suite, store, now=datetime.now(UTC))
    stored = open_run(store, suite.definition.name, run.run_id)
    assert TypeAdapter(SuiteDefinition).validate_python(stored.definition) == stored.definition
    items: list[WorkItem] = []
    expander = Expander(stored.definition)
    for case in decode_part(stored.plan_part(0)):
        items.extend(expander.expand(case, 0, range(10)))
    return items


@pytest.mark.parametrize(("document", "changed", "key"), SUITES.values(), ids=SUITES)
def test_changed_code_changes_the_key_that_it_answers_for(
    tmp_path: Path, document: Any, changed: str, key: str
) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    written = yaml.safe_dump(document, sort_keys=False) if document != "script" else INCLUDING
    (tmp_path / "suite.eval.yaml").write_text(written)
    before = plan(tmp_path, 1)
    assert plan(tmp_path, 2) == before
    text = FILES[changed]
    other = text.replace("x", "y") if changed.endswith(".yaml") else f"{text}# changed\n"
    (tmp_path / changed).write_text(other)
    after = plan(tmp_path, 3)
    executes = [item.exec_key for item in after] != [item.exec_key for item in before]
    grades = [item.grade_key for item in after] != [item.grade_key for item in before]
    assert (executes, grades) == (key == "exec", key in {"exec", "grade"})
