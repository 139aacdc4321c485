"""The few figures of a completed run that listings show: from its manifest, else its report."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from evalcore.errors import StoreError
from evalcore.model.annotation import AwaitedLabels
from evalcore.model.run import Manifest
from evalcore.storage.runs import StoredRun

# `cases` is the last key of a report, and its head is one line.
_HEAD_END = b',"cases":['


class RunFigures(NamedTuple):
    """Score and pass rate from 0 to 1, the cost of the items; None where it was not measured.

    `interval` has the ends of the pass rate's 95 % interval, as the report has it: the variants of
    a case are one unit. Manifests of earlier versions do not have it (`read_interval`).
    """

    score: float | None = None
    pass_rate: float | None = None
    cost_usd: float | None = None
    interval: tuple[float, float] | None = None


def read_figures(run: StoredRun, manifest: Manifest) -> RunFigures:
    """Return the figures of a completed run.

    Manifests of earlier versions do not have them: then the head of the report does. Without a
    report that can be read nothing is known.
    """
    facts = manifest.execution
    if "pass_rate" in facts:
        score, rate, cost = (
            _number(facts.get(name)) for name in ("score", "pass_rate", "cost_usd")
        )
        return RunFigures(score, rate, cost, _ends(facts.get("pass_rate_interval")))
    try:
        head = orjson.loads(_head(run))
        summary = head["summary"]
        figures = (head["score"], summary["pass_rate"], summary["total_cost_usd"])
    except (StoreError, ValueError, LookupError, TypeError, OSError):
        return RunFigures()
    score, rate, cost = map(_number, figures)
    return RunFigures(score, rate, cost)


def read_interval(run: StoredRun) -> tuple[float, float] | None:
    """Return the ends of the pass rate's interval from the head of a completed run's report."""
    try:
        entry = orjson.loads(_head(run))["summary"]["intervals"]["pass_rate"]
        return _ends([entry["low"], entry["high"]])
    except (StoreError, ValueError, LookupError, TypeError, OSError):
        return None


def read_awaited(run: StoredRun) -> AwaitedLabels | None:
    """Return the labels that a completed run was decided without; None if it lacked none."""
    try:
        awaiting = orjson.loads(_head(run))["awaiting"]
        return AwaitedLabels(awaiting["labels"], awaiting["items"])
    except (StoreError, ValueError, LookupError, TypeError, OSError):
        return None


def _head(run: StoredRun) -> bytes:
    path = run.store.local_path(run.keys.report)
    if path is None:
        line = run.store.get(run.keys.report).data.partition(b"\n")[0]
    else:
        with path.open("rb") as file:
            line = file.readline()
    return line.rstrip().removesuffix(_HEAD_END) + b"}"


def _ends(value: Any) -> tuple[float, float] | None:
    match value:
        case [float() | int() as low, float() | int() as high]:
            return low, high
        case _:
            return None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
