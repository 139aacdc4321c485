"""Suites that are graded by judges, run by the real command line against the model server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.model_server import ModelServer
from tests.support.model_wire import Question
from tests.support.shell import Ended, Json, evalcore

VERDICT = {"score": 0.9, "assertions": [], "reasoning": "good"}


def reply(score: float, **more: Any) -> str:
    """Return a valid verdict."""
    return json.dumps({**VERDICT, "score": score, **more})


def judge(server: ModelServer, name: str = "judge", **options: Any) -> Json:
    """Return a judge as `targets:` has it."""
    base = {"name": name, "provider": "openai", "model": name, "base_url": server.base_url}
    return {**base, **options}


def write_suite(
    folder: Path, tests: Sequence[Mapping[str, Any]], *, name: str = "s", **level: Any
) -> Path:
    """Write a test file."""
    path = folder / f"{name}.eval.yaml"
    path.write_text(json.dumps({**level, "tests": tests}))
    return path


def run(path: Path, *flags: str, store: Path | None = None) -> Ended:
    """Run a suite."""
    return evalcore("run", "--json", path.name, *flags, store=store or path.parent / "store",
                    cwd=path.parent)  # fmt: skip


def results(ended: Ended) -> dict[str, Json]:
    """Return the first assertion of each case by the case's id."""
    assert ended.out, ended.err
    return {case["id"]: case["items"][0]["assertions"][0] for case in ended.report["cases"]}


def given(output: str, *assertions: Mapping[str, Any], **more: Any) -> Json:
    """Return a test whose output is given."""
    made: Json = {"id": "a", "input": "hello", "fixtures": {"output": output}, **more}
    return {**made, "assertions": list(assertions)} if assertions else made


def replies(*texts: str) -> Callable[[Question], str]:
    """Return a script that answers with one text after the other, the last one for ever."""
    left = list(texts)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
