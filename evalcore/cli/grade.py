"""`evalcore assert` and `evalcore decide`: single questions, JSON lines in and out."""

from __future__ import annotations

import asyncio
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from evalcore.checks.base import CheckContext
from evalcore.checks.grading import grade
from evalcore.cli.options import import_option, settings
from evalcore.cli.output import reserved_stdout
from evalcore.errors import EvalError, ExitCode, LoadError, UsageError
from evalcore.formats.documents import parse_row, too_large_number
from evalcore.formats.single_assertions import FORMATS, read_single
from evalcore.formats.single_gate import read_question, unread_keys
from evalcore.isolation.mode import Isolation, Workers
from evalcore.judging.asking import NO_JUDGES, Judges
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case, Format
from evalcore.model.summary import Difference
from evalcore.pipeline.gates import DecideOptions, decide_question
from evalcore.report.document import on_one_line
from evalcore.shapes import ParameterError
from evalcore.targets.work import json_text
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import describe, did_you_mean, known_names

if TYPE_CHECKING:
    from evalcore.isolation.pool import WorkerPool


class NoQuestionError(Exception):
    """A line of JSON is no question; the message says what one is. `identity` is its `id`."""

    def __init__(self, message: str, identity: object = None) -> None:
        super().__init__(message)
        self.identity = identity


def answer_lines(
    answer: Callable[[Any], Mapping[str, Any]],
    refuse: Callable[[object, str], Mapping[str, Any]],
    unread: Callable[[Any], Iterable[str]],
) -> ExitCode:
    """Print an answer for each line of standard input that is not blank; return the exit code.

    A byte-order mark before the first line is dropped, as in files.
    `refuse` makes the answer to what no suite could have: a line that is no question, whose message
    names it and which makes the exit code 2, or one with a number of more than 64 bits. `unread`
    yields warnings about keys that nothing reads; each is told once, on standard error.
    """
    code = ExitCode.PASS
    warnings: set[str] = set()
    for number, read in enumerate(sys.stdin.buffer, start=1):
        line = read.removeprefix(BOM_UTF8) if number == 1 else read
        if not line.strip():
            continue
        try:
            raw = _parsed(line)
            reply = _answered(line, raw, answer, refuse)
            for warning in unread(raw):
                if warning not in warnings:
                    warnings.add(warning)
                    text = f"standard input:{number}: warning: {warning}"
                    click.echo(sanitize_terminal(text), err=True)
        except NoQuestionError as error:
            code = ExitCode.USAGE
            message = f"standard input:{number}: {error}"
            click.echo(sanitize_terminal(message), err=True)
            reply = refuse(error.identity, message)
        click.echo(on_one_line(orjson.dumps(reply).decode()))
    return code


def _parsed(line: bytes) -> Any:
    try:
        return parse_row(line).value
    except ValueError as error:
        raise NoQuestionError(f"not valid JSON: {error}") from error


def _answered(
    line: bytes,
    raw: Any,
    answer: Callable[[Any], Mapping[str, Any]],
    refuse: Callable[[object, str], Mapping[str, Any]],
) -> Mapping[str, Any]:
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
    if format_ not in FORMATS:
        raise UsageError(f"no assertions of format '{format_}'; formats: {', '.join(FORMATS)}")
    allowed = (*settings().allow_imports, *imports)
    policy = ImportPolicy(roots=(Path.cwd(),), allowed=allowed)
    pools: list[WorkerPool] = []

    def pool() -> WorkerPool:
        if not pools:
            from evalcore.isolation.pool import WorkerPool

            pools.append(WorkerPool())
        return pools[0]

    workers = Workers(pool, Isolation(settings().isolation))
    try:
        return answer_lines(
            lambda raw: _graded(format_, raw, policy, workers), _error, _unread_measures
        )
    finally:
        for started in pools:
            started.close()


def _error(identity: object, message: str) -> dict[str, Any]:
    return {"id": identity, "score": 0.0, "outcome": "error", "message": message}


def _graded(format_: str, raw: Any, imports: ImportPolicy, workers: Workers) -> dict[str, Any]:
    if not isinstance(raw, dict) or "assertion" not in raw:
        identity = raw.get("id") if isinstance(raw, dict) else None
        raise NoQuestionError("expected an object with 'assertion'", identity)
    measured = raw.get("measured") or {}
    try:
        assertion = read_single(format_, raw["assertion"], Path.cwd())
        _check_measured(measured)
        output = _output(format_, raw)
    except (LoadError, ValueError) as error:
        return _error(raw.get("id"), str(error))
    with reserved_stdout():
        graded = _grade_output(assertion, output, measured, imports, workers, _judges(format_, raw))
        result = asyncio.run(graded)
    return {
        "id": raw.get("id"),
        "score": result.score,
        "outcome": result.outcome,
        "message": result.message,
    }


async def _grade_output(
    assertion: Assertion,
    output: Any,
    measured: Mapping[str, Any],
    imports: ImportPolicy,
    workers: Workers,
    judges: Judges,
) -> AssertionResult:
    """Return the result of one assertion on one output, outside of any run.

    An output that is not text is JSON.

    An `Evidence` is taken as it is, but for what was measured.
    """
    whole = output if isinstance(output, Evidence) else None
    text = output if isinstance(output, str) or output is None else None
    if text is None and whole is None and output is not None:
        text = json_text(output)
    names = {name.name for name in fields(Metrics)}
    metrics = Metrics(**{name: value for name, value in measured.items() if name in names})
    context = CheckContext(folder=Path.cwd(), imports=imports, workers=workers, judges=judges)
    case = Case(id="assertion", assertions=(assertion,))
    evidence = Evidence(text, metrics=metrics)
    if whole is not None:
        evidence = whole._replace(metrics=metrics) if measured else whole
    results = await grade(case.assertions, evidence, case, context)
    return results[0]


def _unread_measures(raw: Any) -> Iterator[str]:
    """Yield a warning for each name in `measured` that is no measure."""
    measures = [measure.name for measure in fields(Metrics)]
    measured = raw.get("measured") if isinstance(raw, Mapping) else None
    for name in measured if isinstance(measured, Mapping) else ():
        if name not in measures:
            hint = did_you_mean(name, measures) or f" {known_names(measures)}"
            yield f"measured.{name} is not read.{hint}"


def _check_measured(measured: Any) -> None:
    if not isinstance(measured, Mapping):
        raise ValueError(f"'measured' is a mapping of names to numbers, not {describe(measured)}")
    for name, value in measured.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ValueError(f"measured.{name}: expected a number, got {describe(value)}")
        if value is not None and value < 0:
            raise ValueError(f"measured.{name}: must be at least 0, got {describe(value)}")


def _output(format_: str, raw: Mapping[str, Any]) -> Any:
    """Return the output: of a suite also what a flow may answer, of a saved eval its handles.

    Raise `ValueError` if it is none.
    """
    if format_ == Format.WORKFLOW_EVALS:
        from evalcore.formats.saved_evals import block_evidence

        return block_evidence(raw)
    output = raw.get("output")
    if format_ != Format.SUITE:
        return output
    from evalcore.targets.answers import answer_evidence, is_whole_evidence

    return answer_evidence(output) if is_whole_evidence(output) else output


def _judges(format_: str, raw: Mapping[str, Any]) -> Judges:
    if format_ != Format.WORKFLOW_EVALS or raw.get("judge") is None:
        return NO_JUDGES
    from evalcore.judging.asking import CannedJudges

    return CannedJudges(raw["judge"])


@click.command()
@import_option
def decide(imports: tuple[str, ...]) -> int:
    """Decide gates: {"id", "gate", "baseline", "variants"} a line on standard input.

    Prints {"id", "passed", "outcome", "message", "regressions", "improvements"} a line, in the same
    order; the outcome is "error" for a gate or results that a suite could not have, and for a line
    that is no question, which makes the exit code 2.
    """
    allowed = (*settings().allow_imports, *imports)
    policy = ImportPolicy(roots=(Path.cwd(),), allowed=allowed)
    return answer_lines(lambda raw: _answer(raw, policy), _error_decide, unread_keys)


def _answer(raw: Any, imports: ImportPolicy) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise NoQuestionError("expected an object with 'gate' and 'variants'")
    try:
        question = read_question(raw)
        options = DecideOptions(imports, isolation=Isolation(settings().isolation))
        with reserved_stdout():
            result, summary = decide_question(question, options.resolve)
    except (EvalError, ParameterError) as error:
        return _error_decide(raw.get("id"), str(error))
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


def _error_decide(identity: object, message: str) -> dict[str, Any]:
    return {
        "id": identity,
        "passed": False,
        "outcome": "error",
        "message": message,
        "regressions": [],
        "improvements": [],
    }
