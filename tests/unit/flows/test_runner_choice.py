"""Which runner a text names, whether it is installed, whether a parameter may name it."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
from pydantic import ValidationError

from evalcore.errors import NotAllowedError, UsageError
from evalcore.settings import Settings
from flows.parameters import EvaluateParameters
from flows.runner import PrefectRunner
from flows.runner_choice import (
    RunnerChoice,
    RunnerKind,
    parse_runner,
    permitted_runner,
    require_installed,
)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("auto", RunnerChoice()),
        ("threads", RunnerChoice(RunnerKind.THREADS)),
        ("lanes", RunnerChoice(RunnerKind.LANES)),
        ("dask", RunnerChoice(RunnerKind.DASK)),
        (
            "dask=tcp://dask-scheduler:8786",
            RunnerChoice(RunnerKind.DASK, "tcp://dask-scheduler:8786"),
        ),
        ("dask=tls://[::1]:8786", RunnerChoice(RunnerKind.DASK, "tls://[::1]:8786")),
        ("ray", RunnerChoice(RunnerKind.RAY)),
        ("ray=ray://head.ray:10001", RunnerChoice(RunnerKind.RAY, "ray://head.ray:10001")),
    ],
)
def test_a_runner_is_a_name_or_a_name_with_an_address(text: str, choice: RunnerChoice) -> None:
    assert parse_runner(text) == choice
    assert str(choice) == text
    assert EvaluateParameters(suite="a", runner=text).runner == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spark", "no runner 'spark'; would work: threads, lanes, dask, dask=tcp"),
        ("", "no runner ''"),
        ("Dask", "no runner 'Dask'"),
        ("threads=4", "the runner 'threads' takes no address"),
        ("dask=", "'' is no address of a dask cluster; would work: dask=tcp://HOST:PORT"),
        ("dask=scheduler:8786", "'scheduler:8786' is no address of a dask cluster"),
        ("dask=ray://head:10001", "is no address of a dask cluster"),
        ("ray=tcp://head:10001", "would work: ray=ray://HOST:PORT"),
        ("dask=tcp://user:secret@host:1", "is no address of a dask cluster"),
        ("dask=tcp://host:8786/path", "is no address of a dask cluster"),
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


@pytest.mark.parametrize("kind", [RunnerKind.DASK, RunnerKind.RAY])
def test_a_runner_that_is_not_installed_says_what_to_install(kind: RunnerKind) -> None:
    choice = RunnerChoice(kind)
    if find_spec(f"prefect_{kind}") is None:
        with pytest.raises(UsageError, match=rf"pip install 'evalcore-pipeline\[{kind}\]'"):
            require_installed(choice)
    else:
        require_installed(choice)


def test_the_address_of_a_cluster_is_permitted_by_the_worker_alone() -> None:
    settings = Settings(allow_runners=("dask=tcp://ours:8786",))
    ours = parse_runner("dask=tcp://ours:8786")
    assert permitted_runner(ours, settings) == ours
    assert permitted_runner(parse_runner("dask"), Settings()) == RunnerChoice(RunnerKind.DASK)
    for text in ("dask=tcp://theirs:8786", "dask=tls://ours:8786", "dask=tcp://ours:87861"):
        with pytest.raises(NotAllowedError, match="EVALCORE_ALLOW_RUNNERS"):
            permitted_runner(parse_runner(text), settings)


def test_processes_are_those_of_lanes_and_clusters() -> None:
    assert PrefectRunner().prepare("lanes", 4) == 4
    assert PrefectRunner().prepare("threads") == 2
    with pytest.raises(UsageError, match="the runner 'threads' has none"):
        PrefectRunner().prepare("threads", 4)
