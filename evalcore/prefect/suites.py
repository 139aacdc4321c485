"""Which suites a worker finds in its folder, and which of them it refuses."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from evalcore.errors import EvalError, NotAllowedError
from evalcore.pipeline.acceptance import AcceptingWorker, refuse_code
from evalcore.pipeline.plan import load
from evalcore.prefect.parameters import EvaluateParameters, find_suites, load_options
from evalcore.settings import read_settings

# Where suites usually stand in a project.
USUAL_PATTERNS: Final = ("*.eval.yaml", "evals/**/*.eval.yaml")
_MOST_LOADED: Final = 50


def missing_suites(patterns: Sequence[str], folder: Path) -> list[str]:
    """Return the patterns and names that no file below `folder` answers to."""
    present = present_suites(patterns, folder)
    return [name for name, _ in find_suites(list(patterns), folder) if name not in present]


def present_suites(patterns: Sequence[str], folder: Path) -> list[str]:
    """Return the files below `folder` that the patterns name, in their order."""
    found = find_suites(list(patterns), folder)
    return [name for name, exists in found if exists and (folder / name).is_file()]


def refused_suites(
    suites: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return why a worker in `folder`, with this environment, refuses suites; nothing is executed.

    Suites that do not load for another reason are left out: the worker may have what is missing
    here. Only the first 50 are looked at.
    """
    settings = read_settings(environment, folder)
    worker = AcceptingWorker(folder, settings, environment=environment)
    reasons: dict[str, str] = {}
    for name in suites[:_MOST_LOADED]:
        options = load_options(EvaluateParameters(suite=name, mode="replay"), settings, environment)
        try:
            suite = load(folder / name, options, name=name)
            refuse_code(suite.definition, suite.cases, worker.policy)
        except NotAllowedError as error:
            reasons[name] = str(error)
        except EvalError:
            continue
    return reasons


def night_warnings(suites: Sequence[str], folder: Path) -> list[str]:
    """Return which suites of a night are missing or refused, and how it gets some."""
    usual = [pattern for pattern in USUAL_PATTERNS if present_suites([pattern], folder)]
    hint = f"`evalcore deploy --suites '{usual[0]}'` names some" if usual else "name some: --suites"
    refused = refused_suites(present_suites(suites, folder), folder)
    warnings = [
        *(f"no file {name} in {folder}; {hint}" for name in missing_suites(suites, folder)),
        *(f"a worker with this environment refuses {name}: {refused[name]}" for name in refused),
    ]
    if not suites:
        return [f"the nightly has no suites and does not run by itself; {hint}"]
    return [f"nightly: {warning}" for warning in warnings]
