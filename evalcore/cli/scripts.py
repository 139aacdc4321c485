"""Show a script suite's run: its scores as YAML, everything else on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from evalcore.cli.showing import one_line, print_terminal
from evalcore.errors import EvalError, LoadError, Problem
from evalcore.formats.includes import find_script, read_script_document
from evalcore.model.run import GateOutcome
from evalcore.model.suite import Format, Suite
from evalcore.wording import Loc, counted, path_text

if TYPE_CHECKING:
    from evalcore.model.scoring import ScriptScores
    from evalcore.pipeline.finish import RunView
    from evalcore.trust.imports import ImportPolicy

_MOST_NOTES = 200


def is_script_run(view: RunView) -> bool:
    """Whether a run is of a script suite."""
    return view.report.format == Format.SCRIPT_SUITE


def read_scores(view: RunView, *, detail: bool) -> ScriptScores:
    """Return the scores; of a flat file always with those of each iteration."""
    scores = view.tables.script_scores(detail=detail)
    if not detail and any(test.group is None for test in scores.tests):
        return view.tables.script_scores(detail=True)
    return scores


def print_scores(scores: ScriptScores, *, append: bool) -> None:
    """Print the scores to standard output; `append` says that a document stands before it."""
    from evalcore.report.script_scores import as_yaml, scores_document

    if append:
        click.echo("---")
    click.echo(as_yaml(scores_document(scores)), nl=False)


def tell_beside(view: RunView, scores: ScriptScores, *, verbose: bool) -> None:
    """Print errors, warnings, gates, tokens and the run's id to standard error."""
    from evalcore.report.script_scores import note_lines, token_lines

    notes = view.tables.script_notes()
    repeated = view.plan.iterations > 1
    lines = list(note_lines(notes, variants=len(scores.finals) > 1, iterations=repeated))
    _tell(lines[:_MOST_NOTES])
    if len(lines) > _MOST_NOTES:
        _tell([f"and {counted(len(lines) - _MOST_NOTES, 'more message')}: --json lists them"])
    for gate in view.report.gates:
        if gate.outcome is not GateOutcome.PASS or verbose:
            _tell([f"gate {gate.name}: {gate.outcome}: {gate.message}"])
    if verbose:
        print_terminal(view, verbose=True, err=True)
    else:
        _tell([f"run {view.report.run.id} in {view.run.store.url}"])
    _tell(token_lines(scores.tokens))


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(one_line(line), err=True)


def problem_at(file: str, loc: Loc, message: str) -> Problem:
    """Return a mistake with its line, for which the file is read once more."""
    name, line = file, None
    with suppress(EvalError):
        name, line = read_script_document(find_script(file), file).locate(loc)
    return Problem(name, line, path_text(loc), message)


def tool_references(suite: Suite) -> Iterator[tuple[str, str, Loc]]:
    """Yield the Python that tools of a script suite name, each with its file and place."""
    if suite.definition.format is Format.SCRIPT_SUITE:
        target = next(iter(suite.definition.targets.values()))
        for reference, file, loc in target.options["imports"]:
            yield reference, file, tuple(loc)


def check_imports(suites: Sequence[Suite], policy: ImportPolicy) -> None:
    """Import the Python that tools of script suites name; raise `LoadError` with what cannot be.

    A tool that is not to be had would score every test 0, and look like a bad result.
    """
    problems: list[Problem] = []
    for suite in suites:
        for reference, file, loc in tool_references(suite):
            try:
                policy.load(reference)
            except EvalError as error:
                problems.append(problem_at(file, loc, str(error)))
    if problems:
        raise LoadError(tuple(problems))
