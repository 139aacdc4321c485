"""`evalcore assert` and `evalcore decide`: single questions, JSON lines in and out."""

from __future__ import annotations

import asyncio
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalcore.checks.base import CheckContext
from evalcore.cli.options import import_option, settings
from evalcore.cli.output import emit, reserved_stdout
from evalcore.errors import EvalError, ExitCode, LoadError, UsageError
from evalcore.formats.documents import parse_row, too_large_number
from evalcore.isolation.mode import Isolation, Workers
from evalcore.judging.asking import CannedJudges
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case, Format
from evalcore.model.summary import Difference
from evalcore.shapes import ParameterError
from evalcore.targets.answers import answer_evidence, is_whole_evidence
from evalcore.targets.work import json_text
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import describe

if TYPE_CHECKING:
    from evalcore.isolation.pool import WorkerPool


class NoQuestionError(Exception):
    """A line of JSON is no question; the message says what one is. `identity` is its `id`."""

    def __init__(self, message: str, identity: object = None) -> None:
        super().__init__(message)
        self.identity = identity


Answer = Callable[[Any], Mapping[str, Any]]
Refuse = Callable[[object, str], Mapping[str, Any]]


def answer_lines(answer: Answer, refuse: Refuse) -> ExitCode:
    """Print an answer for each line of standard input that is not blank; return the exit code.

    A byte-order mark before the first line is dropped, as in files. `refuse` makes the answer to
    what no suite could have: a line that is no question, whose message names it and which makes the
    exit code 2, or one with a number of more than 64 bits.
    """
    code = ExitCode.PASS
    for number, read in enumerate(sys.stdin.buffer, start=1):
        line = read.removeprefix(BOM_UTF8) if number == 1 else read
        if not line.strip():
            continue
        try:
            reply = _answered(line, answer, refuse)
        except NoQuestionError as error:
            code = ExitCode.USAGE
            message = f"standard input:{number}: {error}"
            click.echo(sanitize_terminal(message), err=True)
            reply = refuse(error.identity, message)
        emit(reply, True, ())
    return code


def _answered(line: bytes, answer: Answer, refuse: Refuse) -> Mapping[str, Any]:
    try:
        raw = parse_row(line).value
    except ValueError as error:
        raise NoQuestionError(f"not valid JSON: {error}") from error
    problem = too_large_number(line, raw)
    if problem is None:
        return answer(raw)
    identity = raw.get("id") if isinstance(raw, dict) else None
    return refuse(None if too_large_number(line, identity) else identity, problem)


@click.command("assert")
@click.option("--format", "format_", required=True, metavar="FORMAT", help="Whose assertions.")
@import_option
def assert_(format_: str, imports: tuple[str, ...]) -> int:
    """Grade outputs: {"id", "assertion", "output", "measured"?} a line on standard input.

    Of saved evals: {"id", "assertion", "handle_outputs", "judge"?, "block_error"?}, where `judge`
    is what the judge replies. Without it a condition that asks a judge is blocked.

    Prints {"id", "score", "outcome", "message"} a line, in the same order; the outcome is "error"
    for an assertion that a suite could not have, and for a line that is no question, which makes
    the exit code 2.
    """
    from evalcore.formats.single_assertions import FORMATS

    if format_ not in FORMATS:
        raise UsageError(f"no assertions of format '{format_}'; formats: {', '.join(FORMATS)}")
    with ExitStack() as stack:

        @cache
        def pool() -> WorkerPool:
            from evalcore.isolation.pool import WorkerPool

            started = WorkerPool()
            stack.callback(started.close)
            return started

        context = CheckContext(
            folder=Path.cwd(),
            imports=_policy(imports),
            workers=Workers(pool, Isolation(settings().isolation)),
        )
        return answer_lines(lambda raw: _graded(format_, raw, context), _error)


def _policy(imports: tuple[str, ...]) -> ImportPolicy:
    return ImportPolicy(roots=(Path.cwd(),), allowed=(*settings().allow_imports, *imports))


def _error(identity: object, message: str) -> dict[str, Any]:
    return {"id": identity, "score": 0.0, "outcome": "error", "message": message}


def _graded(format_: str, raw: Any, context: CheckContext) -> dict[str, Any]:
    from evalcore.checks.grading import grade
    from evalcore.formats.single_assertions import read_single

    if not isinstance(raw, dict) or "assertion" not in raw:
        identity = raw.get("id") if isinstance(raw, dict) else None
        raise NoQuestionError("expected an object with 'assertion'", identity)
    try:
        assertion = read_single(format_, raw["assertion"], Path.cwd())
        evidence = _evidence(format_, raw, _metrics(raw.get("measured") or {}))
    except (LoadError, ValueError) as error:
        return _error(raw.get("id"), str(error))
    if format_ == Format.WORKFLOW_EVALS and raw.get("judge") is not None:
        context = replace(context, judges=CannedJudges(raw["judge"]))
    case = Case(id="assertion", assertions=(assertion,))
    with reserved_stdout():
        (result,) = asyncio.run(grade(case.assertions, evidence, case, context))
    return {
        "id": raw.get("id"),
        "score": result.score,
        "outcome": result.outcome,
        "message": result.message,
    }


def _metrics(measured: Any) -> Metrics | None:
    if not isinstance(measured, Mapping):
        raise ValueError(f"'measured' is a mapping of names to numbers, not {describe(measured)}")
    for name, value in measured.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ValueError(f"measured.{name}: expected a number, got {describe(value)}")
        if value is not None and value < 0:
            raise ValueError(f"measured.{name}: must be at least 0, got {describe(value)}")
    names = {name.name for name in fields(Metrics)}
    known = {name: value for name, value in measured.items() if name in names}
    return Metrics(**known) if measured else None


def _evidence(format_: str, raw: Mapping[str, Any], metrics: Metrics | None) -> Evidence:
    """Return the output: of a suite also what a flow may answer, of a saved eval its handles.

    An output that is not text is JSON. Raise `ValueError` if it is none.
    """
    output = raw.get("output")
    whole: Evidence | None = None
    if format_ == Format.WORKFLOW_EVALS:
        from evalcore.formats.saved_evals import block_evidence

        whole = block_evidence(raw)
    elif format_ == Format.SUITE and is_whole_evidence(output):
        whole = answer_evidence(output)
    if whole is not None:
        return whole if metrics is None else whole._replace(metrics=metrics)
    text = output if isinstance(output, str) or output is None else json_text(output)
    return Evidence(text, metrics=metrics or Metrics())


@click.command()
@import_option
def decide(imports: tuple[str, ...]) -> int:
    """Decide gates: {"id", "gate", "baseline", "variants"} a line on standard input.

    Prints {"id", "passed", "outcome", "message", "regressions", "improvements"} a line, in the same
    order; the outcome is "error" for a gate or results that a suite could not have, and for a line
    that is no question, which makes the exit code 2.
    """
    policy = _policy(imports)
    return answer_lines(lambda raw: _decided(raw, policy), _undecided)


def _decided(raw: Any, imports: ImportPolicy) -> dict[str, Any]:
    from evalcore.formats.single_gate import read_question
    from evalcore.pipeline.gates import DecideOptions, decide_question

    if not isinstance(raw, dict):
        raise NoQuestionError("expected an object with 'gate' and 'variants'")
    try:
        question = read_question(raw)
        options = DecideOptions(imports, isolation=Isolation(settings().isolation))
        with reserved_stdout():
            result, summary = decide_question(question, options.resolve)
    except (EvalError, ParameterError) as error:
        return _undecided(raw.get("id"), str(error))
    compared = summary.comparison.variants if summary.comparison is not None else ()
    return {
        "id": raw.get("id"),
        "passed": result.passed,
        "outcome": result.outcome,
        "message": result.message,
        "regressions": [
            _entry(entry)
            for candidate in compared
            for entry in (*candidate.regressions, *candidate.worse_measures)
        ],
        "improvements": [
            _entry(entry)
            for candidate in compared
            for entry in (*candidate.improvements, *candidate.better_measures)
        ],
    }


def _entry(entry: Difference) -> dict[str, str]:
    return {"variant": entry.variant, "case": entry.case, "kind": entry.kind}


def _undecided(identity: object, message: str) -> dict[str, Any]:
    return {
        "id": identity,
        "passed": False,
        "outcome": "error",
        "message": message,
        "regressions": [],
        "improvements": [],
    }
