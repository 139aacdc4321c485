"""Whether the workers of a Dask cluster can execute shards: asked before the first task.

A worker that cannot import a task, or that knows no server of Prefect, does not say so in its task:
the one leaves it alone, the other one starts a server of its own first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from prefect.settings import get_current_settings

from evalcore.errors import UsageError
from evalcore.version import VERSION

_MOST_WORKERS = 3


class WorkerFacts(NamedTuple):
    """What a worker says of itself: its version of evalcore, whether it knows Prefect's server."""

    version: str
    has_server: bool


def worker_facts() -> WorkerFacts:
    """Return what is true of this process; a cluster calls it in each of its workers."""
    return WorkerFacts(VERSION, get_current_settings().api.url is not None)


def refuse_unable_workers(cluster: str, answers: Mapping[str, object]) -> None:
    """Raise `UsageError` if a worker cannot execute shards.

    `answers` are the workers' facts, or the exception that asking for them ended with, by address.
    """
    problems = {worker: _problem(answer) for worker, answer in sorted(answers.items())}
    unable = [f"{worker} {problem}" for worker, problem in problems.items() if problem]
    if not unable:
        return
    listed = "; ".join(unable[:_MOST_WORKERS])
    if len(unable) > _MOST_WORKERS:
        listed += f"; {len(unable) - _MOST_WORKERS} more"
    raise UsageError(f"workers of '{cluster}' cannot execute shards: {listed}")


def _problem(answer: object) -> str:
    if isinstance(answer, WorkerFacts):
        if answer.version != VERSION:
            return f"has evalcore {answer.version}, this process {VERSION}"
        if not answer.has_server:
            return "has no PREFECT_API_URL in its environment: it cannot say how its tasks end"
        return ""
    reason = " ".join(str(answer).split())[:300]
    return f"does not load evalcore {VERSION} (evalcore-pipeline[dask]): {reason}"
