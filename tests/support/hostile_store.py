"""A store in which every text that others write tries to become markup of a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from evalcore.annotations.queue import AnnotationQueue
from evalcore.datasets.store import DatasetChange, commit, lines_by_id
from evalcore.storage.address import open_store
from evalcore.storage.runs import find_run
from tests.support.canary import Canary
from tests.support.pending_captures import write_captures
from tests.support.viewer import run_suite


@dataclass(frozen=True)
class HostileStore:
    """The ids of its two runs, the older one first, and of a dataset and its pending capture."""

    folder: Path
    runs: tuple[str, str]
    suite: str
    cases: tuple[str, ...]
    dataset: str
    capture: str


def hostile_store(folder: Path, canary: Canary) -> HostileStore:
    """Fill `folder/store`: a run and its successor, labels, a dataset with captures."""
    document = hostile_suite(canary)
    before = run_suite(folder, document)
    for test in document["tests"]:
        test["fixtures"] = {"output": canary.attempt("output")}
    after = run_suite(folder, document, "--baseline", before)
    store = open_store(str(folder / "store"))
    with AnnotationQueue(find_run(store, after)) as queue:
        for task in queue.tasks[:2]:
            queue.answer(
                task,
                canary.attempt("annotator")[:190],
                task.form.choices[0],
                at="2026-05-18T10:00:00Z",
                comment=canary.attempt("comment"),
            )
    name = canary.attempt("dataset")
    cases = [
        {
            "id": canary.attempt("dataset-case"),
            "input": canary.attempt("dataset-input"),
            "metadata": {canary.attempt("metadata-key"): canary.attempt("metadata")},
        }
        for _ in range(2)
    ]
    for number in range(2):
        lines = lines_by_id(cases[: number + 1])
        origin = canary.attempt("origin")
        commit(store, name, lambda _, o=origin, n=lines: DatasetChange(o, n))  # type: ignore[misc]
    inputs = {canary.attempt("captured"): canary.attempt("captured-output") for _ in range(3)}
    write_captures(store, inputs, name)
    from evalcore.datasets.catalogue import DatasetCatalogue

    (first, *_) = DatasetCatalogue(store).pending(name).clusters
    ids = tuple(test["id"] for test in document["tests"])
    return HostileStore(
        folder / "store", (before, after), document["name"], ids, name, first.captures[0].id
    )


def hostile_suite(canary: Canary) -> dict[str, Any]:
    """Return a suite of four cases that ask people, half of which fail."""
    labels = [canary.attempt("label"), canary.attempt("label"), "maybe"]
    question = {
        "type": "human",
        "name": canary.attempt("human-name"),
        "question": canary.attempt("question"),
        "instructions": canary.attempt("instructions"),
        "labels": labels,
        "expected": labels[0],
        "annotators": 2,
    }
    tests = []
    for number in range(4):
        conversation = [
            {"role": "system", "content": canary.attempt("system")},
            {"role": "user", "content": canary.attempt("user")},
        ]
        check = {
            "type": "contains",
            "name": canary.attempt("assertion"),
            "value": canary.attempt("message"),
        }
        tests.append(
            {
                "id": canary.attempt("case"),
                "input": conversation if number % 2 else canary.attempt("input"),
                "expected_output": canary.attempt("expected"),
                "tags": [canary.attempt("tag")],
                "metadata": {"note": canary.attempt("metadata")},
                "fixtures": {"output": canary.attempt("output")},
                "assertions": [question] if number < 2 else [question, check],
            }
        )
    return orjson.loads(orjson.dumps({"name": canary.attempt("suite"), "tests": tests}))  # type: ignore[no-any-return]
