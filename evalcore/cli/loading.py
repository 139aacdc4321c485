"""Load every suite that a command names; if one does not load, none is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from evalcore.cli.options import chosen_store
from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.options import LoadOptions
from evalcore.model.suite import Suite, SuiteDefinition
from evalcore.pipeline import load
from evalcore.pipeline.baseline import settle_baseline
from evalcore.trust.text import sanitize_terminal


def check_baseline(definition: SuiteDefinition) -> None:
    """Raise `UsageError` if the caller's baseline is neither a variant nor in the store."""
    if definition.baseline_run is not None:
        settle_baseline(chosen_store(None), definition)


def load_suites(paths: Sequence[str], options: LoadOptions) -> list[Suite]:
    """Return the suites; raise one `LoadError` with the mistakes of all of them."""
    if not paths:
        raise UsageError("name at least one suite file: evalcore run SUITE… (--help shows more)")
    suites: list[Suite] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            suites.append(load(Path(path), options))
        except LoadError as error:
            problems.extend(error.problems)
    if problems:
        raise LoadError(tuple(problems))
    for suite in suites:
        for warning in suite.warnings:
            text = f"Warning: {suite.definition.source.path}: {warning}"
            click.echo(sanitize_terminal(text), err=True)
    return suites
