"""The way of one work item."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalcore.execution.item import ItemRunner, RunInputs, run_inline
from evalcore.execution.reused_items import Reused
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.run import State
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.planning.expand import WorkItem
from evalcore.trust.imports import ImportPolicy

SUITE = SuiteDefinition(
    "suite", Format.TEST_FILE, Source("s.yaml", ".", ""), Policy(ScoreRule.WEIGHTED, ())
)
AWAITED = Assertion("python", "python", "mine", {"callable": "a:b", "config": None})


class EarlierRun:
    """What an earlier run left of item 0, and nothing of the others."""

    def find(self, item: int) -> Reused:
        missing = {"kind": "evidence", "message": "nothing is stored"}
        return Reused({"error": missing}, Evidence("stored") if item == 0 else None, graded=False)

    def forget(self, item: int) -> None:
        assert item >= 0


def runner(suite: SuiteDefinition = SUITE, **inputs: Any) -> ItemRunner:
    return ItemRunner(suite, RunInputs(Path(), ImportPolicy(), **inputs))


def item(number: int = 0, **case: Any) -> WorkItem:
    target = Target("t", "mock", {"response": "fresh", "latency_ms": case.pop("latency_ms", 0)})
    return WorkItem(number, Case("c", "hi", **case), DEFAULT_VARIANT, target, 0, "exec", "grade")


@pytest.mark.parametrize(
    ("case", "waits"),
    [
        ({}, False),
        ({"latency_ms": 5}, True),
        ({"latency_ms": 5, "fixture": Evidence("x")}, False),
        ({"assertions": (AWAITED,)}, True),
        ({"fixture": Evidence("x"), "assertions": (AWAITED,)}, True),
        ({"latency_ms": 5, "reason_not_executable": "it kills"}, False),
    ],
    ids=["instant", "target", "given", "check", "given and check", "not executable"],
)
def test_an_item_waits_for_its_target_or_its_checks(case: dict[str, Any], waits: bool) -> None:
    assert runner().waits(item(**case)) is waits


def test_stored_evidence_is_graded_and_the_target_is_not_asked() -> None:
    reusing = runner(reused=EarlierRun())
    assert not reusing.waits(item(latency_ms=5))
    finished = run_inline(reusing.run(item(latency_ms=5)))
    assert finished.evidence == Evidence("stored")


def test_an_item_without_stored_evidence_is_an_error_and_is_not_executed() -> None:
    finished = run_inline(runner(reused=EarlierRun()).run(item(1, latency_ms=5)))
    assert (finished.status, finished.evidence) == (State.ERROR, None)
    assert finished.error == {"kind": "evidence", "message": "nothing is stored"}


@pytest.mark.parametrize("stops", [True, False])
def test_after_an_error_the_others_are_skipped_if_the_suite_stops_on_errors(stops: bool) -> None:
    policy = Policy(ScoreRule.WEIGHTED, (), stop_on_error=stops)
    running = runner(replace(SUITE, policy=policy))
    statuses = [
        run_inline(running.run(item(number, **case))).status
        for number, case in enumerate([{}, {"reason_not_executable": "it kills"}, {}])
    ]

    last = State.SKIPPED if stops else State.COMPLETED
    assert statuses == [State.COMPLETED, State.ERROR, last]


@pytest.mark.parametrize(("variant_target", "status"), [("t", "completed"), ("u", "skipped")])
def test_a_case_that_names_targets_is_executed_on_these_only(
    variant_target: str, status: str
) -> None:
    planned = item(targets=("t",))._replace(variant=Variant("v", target=variant_target))

    finished = run_inline(runner().run(planned))

    assert (finished.status, finished.reason is None) == (status, status == "completed")


def test_an_item_that_is_not_for_its_target_waits_for_nothing() -> None:
    assert not runner().waits(item(targets=("u",), latency_ms=5))
