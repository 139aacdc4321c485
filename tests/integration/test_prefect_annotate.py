"""The flow `annotate` against a real Prefect server: suspended, resumed by forms, decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow
from prefect.flow_runs import resume_flow_run
from prefect.states import Pending

from evalcore.annotations.labels import LabelBook
from evalcore.annotations.queue import AnnotationQueue
from evalcore.formats.registry import load_suite
from evalcore.model.run import Decision
from evalcore.pipeline.finish import evaluate
from evalcore.prefect.annotate import annotate
from evalcore.storage.address import open_store
from evalcore.storage.runs import find_run, list_runs
from evalcore.storage.store import ObjectStore
from tests.support.prefect_server import PrefectServer

pytestmark = [pytest.mark.prefect, pytest.mark.slow]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    return open_store(str(tmp_path / "store"))


def waiting_run(store: ObjectStore, *outputs: str) -> str:
    """Run a suite that asks a question about each output; return the run's id."""
    question = {"type": "human", "question": "Polite?", "labels": ["yes", "no"], "expected": "yes"}
    tests = [
        {"id": f"c{n}", "input": "x", "fixtures": {"output": output}, "assertions": [question]}
        for n, output in enumerate(outputs)
    ]
    path = Path("polite.eval.yaml")
    path.write_bytes(orjson.dumps({"tests": tests}))
    with evaluate(load_suite(path), store) as view:
        assert view.report.decision is Decision.INCONCLUSIVE
        return view.report.run.id


def started(run: str, **parameters: Any) -> FlowRun:
    """Start a deployment of the flow; nothing executes its flow run yet."""
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(annotate)
        deployment = client.create_deployment(flow_id, name="annotate")
        return client.create_flow_run_from_deployment(
            deployment, parameters={"run": run, **parameters}
        )


def executed(flow_run_id: UUID) -> State[Any]:
    """Execute a flow run as a worker's process does, until it ends or is suspended."""
    with get_client(sync_client=True) as client:
        # The time of a scheduled one has come.
        client.set_flow_run_state(flow_run_id, Pending(), force=True)
        flow_run = client.read_flow_run(flow_run_id)
        try:
            run_flow(annotate, flow_run=flow_run, parameters=flow_run.parameters)
        except Pause:
            pass
        except Exception:  # noqa: BLE001 - a failed state is raised; it is read below
            pass
        state = client.read_flow_run(flow_run_id).state
    assert state is not None
    return state


def test_forms_are_answered_batch_by_batch_and_the_last_label_decides(
    prefect: PrefectServer, store: ObjectStore
) -> None:
    run = waiting_run(store, "please", "thanks", "sure")
    flow_run = started(run, batch=2)
    for answers in ({"answer_1": "yes", "answer_2": "yes"}, {"answer_1": "yes"}):
        assert executed(flow_run.id).name == "Suspended"
        resume_flow_run(flow_run.id, run_input={"annotator": "ann", **answers})

    assert executed(flow_run.id).is_completed()
    newest = next(iter(list_runs(store)))
    assert (newest.decision, newest.settings["reuse"]) == ("pass", run)
    book = LabelBook(store, "polite")
    with AnnotationQueue(find_run(store, run)) as queue:
        assert queue.progress.missing == 0
        assert [len(book.labels_of(task.key)) for task in queue.tasks] == [1, 1, 1]


def test_a_form_waits_until_the_deadline_and_ends_when_no_label_is_missing(
    prefect: PrefectServer, store: ObjectStore
) -> None:
    run = waiting_run(store, "please")
    flow_run = started(run)
    assert executed(flow_run.id).name == "Suspended"
    with AnnotationQueue(find_run(store, run)) as queue:
        (task,) = queue.tasks
        queue.answer(task, "bo", "no", at="2026-05-18T10:00:00Z")
    resume_flow_run(flow_run.id, run_input={"annotator": "ann"})
    assert executed(flow_run.id).name == "GateFailed"
