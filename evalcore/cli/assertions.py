"""`evalcore assert`: single assertions on single outputs, JSON lines in and out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import orjson

from evalcore.cli.options import settings
from evalcore.errors import LoadError, UsageError
from evalcore.execution.single import grade_output
from evalcore.formats.single_assertion import FORMATS, read_single
from evalcore.formats.source import parse_json, too_large_number
from evalcore.formats.wording import describe
from evalcore.model.suite import Format
from evalcore.report.document import on_one_line
from evalcore.trust.imports import ImportPolicy


@click.command("assert")
@click.option("--format", "format_", required=True, metavar="FORMAT", help="Whose assertions.")
@click.option("--allow-import", "imports", multiple=True, metavar="MODULE", help="May be imported.")
def assert_(format_: str, imports: tuple[str, ...]) -> None:
    """Grade outputs: {"id", "assertion", "output", "measured"?} a line on standard input.

    Prints {"id", "score", "outcome", "message"} a line, in the same order.
    """
    if format_ not in FORMATS:
        raise UsageError(f"no assertions of format '{format_}'; formats: {', '.join(FORMATS)}")
    allowed = (*settings().allow_imports, *imports)
    policy = ImportPolicy(roots=(Path.cwd(),), allowed=allowed)
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        try:
            raw = parse_json(line)
        except ValueError as error:
            raise UsageError(f"standard input:{number}: not valid JSON: {error}") from error
        if not isinstance(raw, dict) or "assertion" not in raw:
            raise UsageError(f"standard input:{number}: expected an object with 'assertion'")
        answer = _refused(line, raw) or _graded(format_, raw, policy)
        click.echo(on_one_line(orjson.dumps(answer).decode()))


def _refused(line: bytes, raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer to a question with a number that no suite could have."""
    problem = too_large_number(line, raw)
    if problem is None:
        return None
    identity = raw.get("id")
    return _error(None if too_large_number(line, identity) else identity, problem)


def _error(identity: object, message: str) -> dict[str, Any]:
    return {"id": identity, "score": 0.0, "outcome": "error", "message": message}


def _graded(format_: str, raw: Mapping[str, Any], imports: ImportPolicy) -> dict[str, Any]:
    measured = raw.get("measured") or {}
    try:
        assertion = read_single(format_, raw["assertion"], Path.cwd())
        _check_measured(measured)
        output = _output(format_, raw.get("output"))
    except (LoadError, ValueError) as error:
        return _error(raw.get("id"), str(error))
    result = asyncio.run(grade_output(assertion, output, measured, imports))
    return {
        "id": raw.get("id"),
        "score": result.score,
        "outcome": result.outcome,
        "message": result.message,
    }


def _check_measured(measured: Any) -> None:
    if not isinstance(measured, Mapping):
        raise ValueError(f"'measured' is a mapping of names to numbers, not {describe(measured)}")
    for name, value in measured.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ValueError(f"measured.{name}: expected a number, got {describe(value)}")


def _output(format_: str, output: Any) -> Any:
    """Return the output; a suite's may be what a flow may answer: outputs by block, state, errors.

    Raise `ValueError` if it is none.
    """
    if format_ != Format.SUITE:
        return output
    from evalcore.targets.flow_answer import answer_evidence, is_whole_evidence

    return answer_evidence(output) if is_whole_evidence(output) else output
