"""Which runner a text names, whether a parameter may name it, what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from evalcore.errors import NotAllowedError, StoreError, UsageError
from evalcore.formats.registry import load_suite
from evalcore.pipeline.session import ExecuteOptions
from evalcore.prefect import parameters
from evalcore.prefect.parameters import (
    EvaluateParameters,
    RunnerChoice,
    parse_runner,
    permitted_runner,
)
from evalcore.prefect.runner import PrefectRunner
from evalcore.prefect.tasks import open_runner
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.prefect_runs import planned, write_suite


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("auto", RunnerChoice()),
        ("threads", RunnerChoice("threads")),
        (
            "dask=tcp://dask-scheduler:8786",
            RunnerChoice("dask", "tcp://dask-scheduler:8786"),
        ),
        ("dask=tls://[::1]:8786", RunnerChoice("dask", "tls://[::1]:8786")),
        ("ray", RunnerChoice("ray")),
        ("ray=ray://head.ray:10001", RunnerChoice("ray", "ray://head.ray:10001")),
    ],
)
def test_a_runner_is_a_name_or_a_name_with_an_address(text: str, choice: RunnerChoice) -> None:
    assert parse_runner(text) == choice
    assert str(choice) == text
    assert EvaluateParameters(suite="a", runner=text).runner == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spark", "no runner 'spark'; would work: threads, dask, dask=tcp"),
        ("", "no runner ''"),
        ("Dask", "no runner 'Dask'"),
        ("threads=4", "no runner 'threads=4'; would work: threads, dask, dask=tcp"),
        ("dask=", "no runner 'dask='"),
        ("dask=scheduler:8786", "no runner 'dask=scheduler:8786'"),
        ("dask=ray://head:10001", "no runner"),
        ("ray=tcp://head:10001", "ray=ray://HOST:PORT"),
        ("dask=tcp://user:secret@host:1", "no runner"),
        ("dask=tcp://host:8786/path", "no runner"),
    ],
)
def test_what_is_no_runner_is_refused_with_the_forms_that_would_work(
    text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_runner(text)


@pytest.mark.parametrize("text", ["spark", "threads=1", "dask=", "dask=tcp://a b:1"])
def test_the_form_of_the_deployment_refuses_it_too(text: str) -> None:
    with pytest.raises(ValidationError, match="runner"):
        EvaluateParameters(suite="a", runner=text)


def test_the_address_of_a_cluster_is_permitted_by_the_worker_alone() -> None:
    settings = Settings(allow_runners=("dask=tcp://ours:8786",))
    ours = parse_runner("dask=tcp://ours:8786")
    assert permitted_runner(ours, settings) == ours
    assert permitted_runner(parse_runner("dask"), Settings()) == RunnerChoice("dask")
    for text in ("dask=tcp://theirs:8786", "dask=tls://ours:8786", "dask=tcp://ours:87861"):
        with pytest.raises(NotAllowedError, match="EVALCORE_ALLOW_RUNNERS"):
            permitted_runner(parse_runner(text), settings)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    suite = load_suite(tmp_path / write_suite(tmp_path, "hello"))
    return planned(suite, LocalStore(tmp_path / "store"))


def test_a_run_is_planned_for_the_processes_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "find_spec", lambda _: True)
    assert [PrefectRunner().prepare(name, 4) for name in ("dask", "ray")] == [4, 4]
    assert PrefectRunner().prepare("threads", 4) == PrefectRunner().prepare("auto")
    with pytest.raises(UsageError, match="no runner 'spark'"):
        PrefectRunner().prepare("spark")


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_whose_package_is_missing_is_refused_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(parameters, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=rf"pip install 'evalcore-pipeline\[{kind}\]'"):
        PrefectRunner().prepare(kind)


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_suite_of_python_objects_and_a_store_without_conditions_have_no_cluster(
    monkeypatch: pytest.MonkeyPatch, run: StoredRun, kind: str
) -> None:
    monkeypatch.setattr(parameters, "find_spec", lambda _: True)
    with pytest.raises(UsageError, match="Python objects of this one: use the runner 'threads'"):
        open_runner(parse_runner(kind), run, ExecuteOptions(objects={"f": print}), 2)
    monkeypatch.setattr(LocalStore, "probe_conditional_writes", lambda _: False)
    with pytest.raises(StoreError, match=r"If-Match\), so processes cannot share a run there"):
        open_runner(parse_runner(kind), run, ExecuteOptions(), 2)
