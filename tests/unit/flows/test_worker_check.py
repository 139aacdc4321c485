"""What workers of a Dask cluster say of themselves, and which of them cannot execute shards."""

from __future__ import annotations

import pytest

from evalcore.errors import UsageError
from evalcore.version import VERSION
from flows.worker_check import WorkerFacts, refuse_unable_workers, worker_facts

ABLE = WorkerFacts(VERSION, has_server=True)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(WorkerFacts("0.0.1", has_server=True), "has evalcore 0.0.1", id="version"),
        pytest.param(WorkerFacts(VERSION, has_server=False), "no PREFECT_API_URL", id="no server"),
        pytest.param(
            Exception("ModuleNotFoundError(\"No module named 'flows'\")"),
            "does not load evalcore .*: ModuleNotFoundError.*'flows'",
            id="package",
        ),
    ],
)
def test_a_worker_that_cannot_execute_shards_is_named_with_the_reason(
    answer: object, problem: str
) -> None:
    with pytest.raises(UsageError, match=f"'dask=tcp://s:1'.*tcp://w2:2 .*{problem}") as refused:
        refuse_unable_workers("dask=tcp://s:1", {"tcp://w1:1": ABLE, "tcp://w2:2": answer})
    assert "tcp://w1:1" not in str(refused.value)


def test_of_many_workers_that_cannot_execute_shards_the_first_are_named() -> None:
    answers = {f"tcp://w{number}:1": Exception("gone") for number in range(9)}
    with pytest.raises(UsageError, match=r"w2:1 .*; 6 more$"):
        refuse_unable_workers("dask=tcp://s:1", answers)


def test_workers_alike_this_process_are_not_named() -> None:
    able = worker_facts()._replace(has_server=True)
    refuse_unable_workers("dask=tcp://s:1", {"tcp://w1:1": able})
    with pytest.raises(UsageError) as refused:
        refuse_unable_workers("dask=tcp://s:1", {"tcp://w1:1": able, "tcp://w2:1": OSError("x")})
    assert "tcp://w2:1" in str(refused.value)
    assert "tcp://w1:1" not in str(refused.value)
