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
from evalcore.formats.source import parse_json
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
        click.echo(on_one_line(orjson.dumps(_graded(format_, raw, policy)).decode()))


def _graded(format_: str, raw: Mapping[str, Any], imports: ImportPolicy) -> dict[str, Any]:
    try:
        assertion = read_single(format_, raw["assertion"], Path.cwd())
    except LoadError as error:
        return {"id": raw.get("id"), "score": 0.0, "outcome": "error", "message": str(error)}
    output = raw.get("output")
    if format_ == Format.SUITE:
        from evalcore.targets.flow_answer import answer_evidence, is_whole_evidence

        # What a flow may answer: outputs by block, state, errors.
        output = answer_evidence(output) if is_whole_evidence(output) else output
    result = asyncio.run(grade_output(assertion, output, raw.get("measured") or {}, imports))
    return {
        "id": raw.get("id"),
        "score": result.score,
        "outcome": result.outcome,
        "message": result.message,
    }
